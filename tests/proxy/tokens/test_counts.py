import json
from typing import Any

import pytest

from proxy import wire
from proxy.tokens import counter, counts
from proxy.tokens.counts import Counts

COUNTER = counter("a-model-nobody-knows")
USER = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "find_ferry", "arguments": '{"day": "friday"}'}}


def parsed(*messages: dict[str, Any], **fields: Any) -> wire.Chat:
    return wire.parse(json.dumps({"messages": messages, **fields}).encode())


def test_calls_are_apart_from_the_text_beside_them() -> None:
    text = {"role": "assistant", "content": "Let me look that up."}

    alone = counts.of_message(COUNTER, parsed(text).messages[0])
    calling = counts.of_message(COUNTER, parsed({**text, "tool_calls": [CALL]}).messages[0])

    assert alone.calls == 0
    assert calling.calls > 10
    assert calling[:4] == alone[:4]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "渡轮几点出发? At noon, 12:30!"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"at": "12:30"}'},
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "Привет"}]},
        {"role": "assistant", "content": "x", "reasoning_content": "because", "tool_calls": [CALL]},
    ],
    ids=["mixed", "calls", "result", "legacy", "parts", "reasoning"],
)
def test_nothing_of_a_message_is_lost(message: dict[str, Any]) -> None:
    m = parsed(message).messages[0]

    made = counts.of_message(COUNTER, m)

    assert sum(made[:5]) == sum(COUNTER.classes(m))
    assert made.fixed == COUNTER.fixed(m)
    assert made.messages == 1
    assert min(made) >= 0


def test_schemas_are_counted_before_any_ratio() -> None:
    tool = {"type": "function", "function": {"name": "find_ferry", "parameters": {"type": "object"}}}
    plain = counts.of_settings(COUNTER, parsed(USER).settings)

    given = counts.of_settings(COUNTER, parsed(USER, tools=[tool]).settings)

    assert plain == Counts(fixed=COUNTER.framing.reply + COUNTER.framing.preamble)
    assert 0 < given.schemas < COUNTER.overhead(parsed(USER, tools=[tool]).settings)
    assert given.fixed == plain.fixed


def test_parts_add_up() -> None:
    assert counts.total([Counts(1, 2, 3, 4, 5, 6, 7, 8), Counts(latin=1, messages=1)]) == Counts(2, 2, 3, 4, 5, 6, 7, 9)
    assert counts.total([]) == Counts()
