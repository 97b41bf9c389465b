"""The OpenAI SDK's own objects, sent back the ways its users do, are the messages that came."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessage

from proxy.wire.canonical import digest

ANSWERS: dict[str, dict[str, Any]] = {
    "a text": {"role": "assistant", "content": "Berth 4 is free.", "refusal": None, "annotations": []},
    "calls": {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "tool_calls": [
            {"id": f"call_{n}", "type": "function", "function": {"name": "find", "arguments": f'{{"n": {n}}}'}}
            for n in range(2)
        ],
    },
    "a custom call": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "run", "input": "ls"}}],
    },
    "a legacy call": {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": '{"n":1}'}},
    "a refusal": {"role": "assistant", "content": None, "refusal": "I can't help with that."},
    "thoughts": {"role": "assistant", "content": "Berth 4.", "reasoning_content": "It is the nearer one."},
}

Echo = Callable[[ChatCompletionMessage], Any]
ECHOES: dict[str, Echo] = {
    "the object": lambda message: message,
    "model_dump()": lambda message: message.model_dump(),
    "model_dump(exclude_none)": lambda message: message.model_dump(exclude_none=True),
    "model_dump(exclude_unset)": lambda message: message.model_dump(exclude_unset=True),
    "to_dict()": lambda message: message.to_dict(),
    "to_json()": lambda message: json.loads(message.to_json()),
    "by hand": lambda message: {
        "role": message.role,
        "content": message.content or "",
        "refusal": message.refusal,
        "tool_calls": [call.model_dump() for call in message.tool_calls or []],
        "function_call": message.function_call,
    },
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=list(ECHOES))
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_a_message_that_the_sdk_sends_back_is_the_one_that_came(answer: dict[str, Any], echo: Echo) -> None:
    bodies: list[dict[str, Any]] = []

    def upstream(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        choice = {"index": 0, "finish_reason": "stop", "message": answer}
        return httpx2.Response(
            200, json={"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        )

    with OpenAI(
        api_key="k", base_url="http://fake/v1", http_client=httpx2.Client(transport=httpx2.MockTransport(upstream))
    ) as client:
        history: list[Any] = [{"role": "user", "content": "Which berth?"}]
        first = client.chat.completions.create(model="m", messages=history)
        history += [echo(first.choices[0].message), {"role": "user", "content": "And tomorrow?"}]
        client.chat.completions.create(model="m", messages=history)

    assert digest(bodies[1]["messages"][1]) == digest(answer)
    assert digest(bodies[1]["messages"][0]) == digest(bodies[0]["messages"][0])
