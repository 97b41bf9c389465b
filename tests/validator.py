"""The rules that OpenAI enforces on `messages`, written apart from the code that keeps them, for tests to judge by."""

import json
from collections import Counter
from typing import Any

Message = dict[str, Any]

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
INSTRUCTIONS = frozenset({"system", "developer"})


def violations(messages: list[Message]) -> list[str]:
    """What an upstream would refuse, one line each, beginning with the index of the message at fault."""
    if not messages:
        return ["-: the list of messages is empty"]
    return [f"{index}: {text}" for index, text in _violations(messages)]


def worsened(before: list[Message], after: list[Message], rewritten: frozenset[int] = frozenset()) -> list[str]:
    """What is worse in `after` than in `before`: something reordered, repeated, emptied or newly refused.

    `after` may leave messages out and may contain user messages that `before` has not (notes); `rewritten` are the
    indexes of those messages of `before` that come with another content.
    """
    if not after:
        return ["the list of messages is empty"]
    origins = _origins(before, after, rewritten)
    problems = []
    for position, (message, origin) in enumerate(zip(after, origins, strict=True)):
        if not isinstance(message, dict):
            if origin is None:
                problems.append(f"{position}: not a message of the input, or out of order, or a second time")
            continue
        if origin is None and (message.get("role") != "user" or any(_same(one, message, False) for one in before)):
            problems.append(f"{position}: not a message of the input, or out of order, or a second time")
        if origin is None and message.get("content") in ("", []):
            problems.append(f"{position}: a note without content")
        if origin in rewritten and message.get("content") in ("", []) and message not in before:
            problems.append(f"{position}: emptied")
    kept = {origin for origin in origins if origin is not None}
    for index, message in enumerate(before):
        role = _role(message)
        if (role is None or role in INSTRUCTIONS) and index not in kept:
            problems.append(f"input {index}: {f'the {role} message' if role else 'what states no role'} is gone")
    known = Counter((index, text) for index, text in _violations(before))
    for position, text in _violations(after):
        if (origins[position], text) not in known:
            problems.append(f"{position}: {text}")
    return problems


def _role(message: Any) -> str | None:
    """The role that a message states; anything may stand where a message is to be."""
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else None


def _violations(messages: list[Message]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    caller: int | None = None
    open_calls: list[str] = []
    open_function: tuple[int, str] | None = None

    def close() -> None:
        if caller is not None and open_calls:
            found.append((caller, "tool calls without an answer"))
        open_calls.clear()
        if open_function is not None:
            found.append((open_function[0], "a function call without an answer"))

    for index, message in enumerate(messages):
        role = _role(message)
        if role not in ROLES:
            found.append((index, "an unknown role"))
        if not isinstance(message, dict):
            close()
            caller, open_function = None, None
            continue
        if role == "tool":
            identity = message.get("tool_call_id")
            if identity in open_calls:
                open_calls.remove(identity)
            else:
                found.append((index, "answers no open call"))
            continue
        if role == "function" and open_function is not None and open_function[1] == message.get("name"):
            open_function = None
            continue
        if role == "function":
            found.append((index, "answers no function call"))
            continue
        close()
        caller, open_function = None, None
        if role == "assistant":
            calls = message.get("tool_calls")
            if isinstance(calls, list) and calls:
                caller = index
                open_calls.extend(call.get("id") for call in calls if isinstance(call, dict))
            function = message.get("function_call")
            if isinstance(function, dict):
                open_function = (index, function.get("name", ""))
    close()
    return sorted(found)


def _origins(before: list[Message], after: list[Message], rewritten: frozenset[int]) -> list[int | None]:
    """For each message out, the message in that it is, in order; None where there is none."""
    origins: list[int | None] = []
    next_free = 0
    for message in after:
        match = next((i for i in range(next_free, len(before)) if _same(before[i], message, i in rewritten)), None)
        origins.append(match)
        next_free = next_free if match is None else match + 1
    return origins


def _same(one: Message, other: Message, rewritten: bool) -> bool:
    if rewritten and isinstance(one, dict) and isinstance(other, dict):
        one, other = ({key: value for key, value in m.items() if key != "content"} for m in (one, other))
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
