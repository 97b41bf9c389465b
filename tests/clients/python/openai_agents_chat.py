"""The OpenAI Agents SDK, in its chat-completions mode."""

import asyncio
import sys

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_api, set_tracing_disabled
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from talk import MODEL, QUESTIONS, SCHEMA_QUESTION, SYSTEM, TASK, look_up, run

set_tracing_disabled(True)
if sys.argv[1] != "responses":
    set_default_openai_api("chat_completions")


class Berth(BaseModel):
    """Where a ship lies."""

    quay: str
    number: int


def talk():
    """Streams; the framework's session keeps the history."""

    async def streamed():
        told, session = [], SQLiteSession("harbour")
        agent = Agent(name="clerk", instructions=SYSTEM, model=MODEL)
        for question in QUESTIONS:
            result = Runner.run_streamed(agent, question, session=session)
            events = [each.data async for each in result.stream_events() if each.type == "raw_response_event"]
            text = "".join(each.delta for each in events if isinstance(each, ResponseTextDeltaEvent))
            assert text == result.final_output
            told.append(text)
        return told

    return asyncio.run(streamed())


def whole():
    """Whole answers."""
    told, items = [], []
    agent = Agent(name="clerk", instructions=SYSTEM, model=MODEL)
    for question in QUESTIONS:
        result = Runner.run_sync(agent, [*items, {"role": "user", "content": question}])
        told.append(result.final_output)
        items = result.to_input_list()
    return told


def tools():
    """An agent's loop."""
    agent = Agent(name="clerk", instructions=SYSTEM, model=MODEL, tools=[function_tool(look_up)])
    return [Runner.run_sync(agent, TASK, max_turns=50).final_output]


def structured():
    """Objects of a class, at the end of a long conversation."""
    told, items = [], []
    agent = Agent(name="clerk", instructions=SYSTEM, model=MODEL, output_type=Berth)
    for question in [*QUESTIONS, SCHEMA_QUESTION]:
        result = Runner.run_sync(agent, [*items, {"role": "user", "content": question}])
        told.append(result.final_output.model_dump())
        items = result.to_input_list()
    return told


def responses():
    """The other API, which is this framework's default."""
    return [Runner.run_sync(Agent(name="clerk", model=MODEL), QUESTIONS[0]).final_output]


run(talk=talk, whole=whole, tools=tools, structured=structured, responses=responses)
