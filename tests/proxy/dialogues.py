"""Conversations written for the tests, and bodies made of them."""

import json
from collections.abc import Sequence
from typing import Any

from policies import registry
from proxy.route import Route, Thresholds

Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str = "You help the harbour office.") -> Message:
    return {"role": "system", "content": text}


def call(number: int, result: str, *, name: str = "look_up") -> list[Message]:
    """An assistant message with one call, and its result."""
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": f'{{"n": {number}}}'}}
    ]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def words(count: int, seed: int = 0) -> str:
    """`count` plain words, about a token each, different for each seed."""
    pool = ("tide", "berth", "crane", "pilot", "cargo", "buoy", "anchor", "ledger", "quay", "signal", "manifest", "tug")
    return " ".join(pool[(seed * 7 + i * (seed % 5 + 1)) % len(pool)] for i in range(count))


def dialogue(turns: int, size: int = 40) -> list[Message]:
    """A system message, then `turns` questions with their answers, then one more question."""
    messages = [system()]
    for turn in range(turns):
        messages += [
            user(f"Question {turn}: {words(size, turn)}?"),
            assistant(f"Answer {turn}: {words(size, turn + 1)}."),
        ]
    return [*messages, user("And what about the last one?")]


def agent(steps: int, size: int = 60) -> list[Message]:
    """One task, and a tool loop of `steps` calls that has not ended."""
    messages = [system(), user("Find out which berth the Halcyon may use.")]
    for step in range(steps):
        messages += call(step, f"Result {step}: {words(size, step)}")
    return messages


def body(messages: Sequence[Message], model: str = "gpt-4o", **fields: object) -> bytes:
    return json.dumps({"model": model, "messages": list(messages), **fields}, ensure_ascii=False).encode()


def route(policy: str = "fifo", options: dict[str, object] | None = None, **settings: Any) -> Route:
    """A route with a window that the test chooses, no reserve, the documents' thresholds, and no care for the cache."""
    values = {"reserve_output": 0, "breathing_turns": 0, "keep_prefix": 0.0, "thresholds": Thresholds(), **settings}
    return Route(name="test", upstream="up", policy=registry.create(policy, options or {}), **values)
