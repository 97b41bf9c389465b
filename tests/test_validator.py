"""The judge itself: each rule has a conversation that keeps it and one that breaks it."""

import pytest

from tests.validator import violations, worsened

U = {"role": "user", "content": "u"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "r"}
LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}
RETURNED = {"role": "function", "name": "f", "content": "r"}
SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([SYSTEM, U, CALL, RESULT, U], [], id="valid"),
        pytest.param([U, LEGACY, RETURNED, U], [], id="valid legacy"),
        pytest.param([], ["-: the list of messages is empty"], id="empty"),
        pytest.param([U, RESULT], ["1: answers no open call"], id="orphan"),
        pytest.param([CALL, RESULT, RESULT], ["2: answers no open call"], id="second result"),
        pytest.param([CALL, U], ["0: tool calls without an answer"], id="unanswered"),
        pytest.param([U, CALL], ["1: tool calls without an answer"], id="unanswered at the end"),
        pytest.param(
            [CALL, U, RESULT], ["0: tool calls without an answer", "2: answers no open call"], id="a user in between"
        ),
        pytest.param([LEGACY, U], ["0: a function call without an answer"], id="unanswered legacy"),
        pytest.param([U, RETURNED], ["1: answers no function call"], id="orphan legacy"),
        pytest.param([{"role": "critic"}], ["0: an unknown role"], id="role"),
        pytest.param([7, U, None], ["0: an unknown role", "2: an unknown role"], id="no messages"),
        pytest.param(
            [CALL, 7, RESULT],
            ["0: tool calls without an answer", "1: an unknown role", "2: answers no open call"],
            id="no message in between",
        ),
    ],
)
def test_rules(messages: list[dict], expected: list[str]) -> None:
    assert violations(messages) == expected


A, B = ({"role": "assistant", "content": text} for text in "ab")


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        pytest.param([U, A, B], [U, B], None, id="one left out"),
        pytest.param([U, A], [U, {"role": "user", "content": "note"}, A], None, id="a note"),
        pytest.param([U, RESULT, A], [U, RESULT], None, id="a fault that was there"),
        pytest.param([U, A, B], [U, B, A], "out of order", id="reordered"),
        pytest.param([U, A], [U, A, A], "a second time", id="twice"),
        pytest.param([U, A], [U, A, U], "a second time", id="a user's twice"),
        pytest.param([U, A], [U, {"role": "assistant", "content": "c"}], "not a message of the input", id="invented"),
        pytest.param([SYSTEM, U], [U], "the system message is gone", id="system gone"),
        pytest.param([7, A, U], [7, U], None, id="around no message"),
        pytest.param([7, U], [U], "what states no role is gone", id="no message gone"),
        pytest.param([{"content": "?"}, U], [U], "what states no role is gone", id="no role gone"),
        pytest.param([U], [7, U], "not a message of the input", id="no message invented"),
        pytest.param([U, CALL, RESULT], [U, CALL], "without an answer", id="result gone"),
        pytest.param([U, CALL, RESULT], [U, RESULT], "answers no open call", id="call gone"),
        pytest.param([U, A], [U, {"role": "user", "content": ""}, A], "a note without content", id="empty note"),
        pytest.param([U], [], "is empty", id="nothing left"),
    ],
)
def test_worse_is_found(before: list[dict], after: list[dict], problem: str | None) -> None:
    found = worsened(before, after)
    assert (found == []) if problem is None else any(problem in line for line in found)


def test_a_rewritten_message_is_known_by_the_rest_of_it() -> None:
    shrunk = RESULT | {"content": "gone"}
    assert worsened([U, CALL, RESULT], [U, CALL, shrunk])
    assert worsened([U, CALL, RESULT], [U, CALL, shrunk], rewritten=frozenset({2})) == []
    assert worsened([U, CALL, RESULT], [U, CALL, RESULT | {"content": ""}], rewritten=frozenset({2}))
    empty = {"role": "assistant", "content": ""}
    assert worsened([A, U, empty], [empty], rewritten=frozenset({0})) == [], (
        "empty as it came, and the other one is gone"
    )
