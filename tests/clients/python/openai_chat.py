"""The official library."""

import asyncio

import openai
from pydantic import BaseModel
from talk import FAILS, IMAGE, MODEL, QUESTIONS, SCHEMA_QUESTION, SLOW, SYSTEM, TASK, look_up, run

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a berth up in the harbour's register.",
        "parameters": {"type": "object", "properties": {"berth": {"type": "integer"}}, "required": ["berth"]},
    },
}


class Berth(BaseModel):
    """Where a ship lies."""

    quay: str
    number: int


def talk(questions=QUESTIONS, start=None):
    """Streams; what is sent back is put together by the application."""
    told, messages = [], list(start or [{"role": "system", "content": SYSTEM}])
    with openai.OpenAI() as client:
        for question in questions:
            messages.append({"role": "user", "content": question})
            stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            messages.append({"role": "assistant", "content": text})
            told.append(text)
    return told


def whole():
    """Whole answers; what is sent back is the library's own object."""
    told, messages = [], [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI() as client:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            reply = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message
            messages.append(reply)
            told.append(reply.content)
    return told


def helper():
    """The streaming helper, which assembles the message, with usage."""
    told, messages = [], [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI() as client:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            asked = {"model": MODEL, "messages": messages, "stream_options": {"include_usage": True}}
            with client.chat.completions.stream(**asked) as stream:
                reply = stream.get_final_completion()
            assert reply.usage.prompt_tokens > 0
            messages.append(reply.choices[0].message)
            told.append(reply.choices[0].message.content)
    return told


def tools():
    """A loop of calls, one of them parallel."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    with openai.OpenAI() as client:
        while True:
            reply = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message
            messages.append(reply)
            if not reply.tool_calls:
                return [reply.content]
            for call in reply.tool_calls:
                berth = Arguments.model_validate_json(call.function.arguments).berth
                messages.append({"role": "tool", "tool_call_id": call.id, "content": look_up(berth)})


class Arguments(BaseModel):
    """Of a call."""

    berth: int


def structured():
    """An answer as an object of a class, at the end of a long conversation."""
    told, messages = [], [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI() as client:
        for question in [*QUESTIONS, SCHEMA_QUESTION]:
            messages.append({"role": "user", "content": question})
            reply = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Berth)
            messages.append(reply.choices[0].message)
            told.append(reply.choices[0].message.parsed.model_dump())
    return told


def images():
    """A picture with each question."""
    told, messages = [], [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI() as client:
        for question in QUESTIONS:
            picture = {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}}
            messages.append({"role": "user", "content": [{"type": "text", "text": question}, picture]})
            reply = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message
            messages.append(reply)
            told.append(reply.content)
    return told


def concurrent():
    """Three conversations at a time, asynchronously."""

    async def one(client, name):
        told, messages = [], [{"role": "system", "content": f"{SYSTEM} {name}"}]
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            messages.append({"role": "assistant", "content": text})
            told.append(text)
        return told

    async def all_of_them():
        async with openai.AsyncOpenAI() as client:
            return await asyncio.gather(*(one(client, name) for name in ("Ada", "Bo", "Cy")))

    told = asyncio.run(all_of_them())
    assert told[0] == told[1] == told[2]
    return told[0]


def abort():
    """A stream is left after a few words; the conversation goes on with what came."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": SLOW}]
    with openai.OpenAI() as client:
        stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        heard = "".join(next(stream).choices[0].delta.content or "" for _ in range(4))
        stream.close()
    return talk(start=[*messages, {"role": "assistant", "content": heard}])


def retry():
    """The upstream is busy, then down, then there: the library tries again by itself."""
    return talk(questions=[*QUESTIONS[:-1], FAILS])


def served():
    """A model that really answers, in few words, for longer than its window takes."""
    told, messages = [], [{"role": "system", "content": SYSTEM}]
    with openai.OpenAI(max_retries=0) as client:
        for question in QUESTIONS * 2:
            messages.append({"role": "user", "content": question})
            asked = {"model": MODEL, "messages": messages, "max_tokens": 12, "stream": True}
            stream = client.chat.completions.create(**asked, stream_options={"include_usage": True})
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            messages.append({"role": "assistant", "content": text or "-"})
            told.append(text)
    return told


def responses():
    """The other API."""
    with openai.OpenAI() as client:
        return [client.responses.create(model=MODEL, input=QUESTIONS[0]).output_text]


run(
    talk=talk,
    whole=whole,
    helper=helper,
    tools=tools,
    structured=structured,
    images=images,
    concurrent=concurrent,
    abort=abort,
    retry=retry,
    served=served,
    responses=responses,
)
