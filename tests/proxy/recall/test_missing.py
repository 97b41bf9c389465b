"""What a prompt lacks is told to the character, so that it can come back, and nothing else does."""

import pytest

from policies.types import Kind
from proxy import wire
from proxy.conversations.ledger import Ledger, Truncation
from proxy.conversations.notes import Note, Quote
from proxy.recall.missing import left_out, missing, named_results, without
from proxy.wire import grouping
from proxy.wire.chat import Message
from tests.proxy.dialogues import body, call, system, user


def read(*messages: dict[str, object]) -> tuple[Message, ...]:
    return wire.parse(body(messages)).messages


PARTS = {"role": "user", "content": [{"type": "text", "text": "0123456789"}, {"type": "text", "text": "abcdef"}]}


@pytest.mark.parametrize(
    ("ledger", "lacking"),
    [
        pytest.param(Ledger(), "", id="nothing was done"),
        pytest.param(Ledger(drops=frozenset({0})), "0123456789\nabcdef", id="dropped"),
        pytest.param(Ledger(clears={0: "[gone]"}), "0123456789\nabcdef", id="cleared"),
        pytest.param(Ledger(truncations={0: (Truncation(0, 2, 3),)}), "23456", id="the first part shortened"),
        pytest.param(Ledger(truncations={0: (Truncation(1, 1, 2),)}), "bcd", id="the second part shortened"),
        pytest.param(
            Ledger(truncations={0: (Truncation(0, 9, 0), Truncation(1, 1, 1))}), "9|bcde", id="both parts shortened"
        ),
    ],
)
def test_what_the_ledger_takes_away(ledger: Ledger, lacking: str) -> None:
    (message,) = read(PARTS)

    assert "|".join(message.text[a:b] for a, b in left_out(ledger, 0, message)) == lacking


def test_what_is_quoted_is_not_missing() -> None:
    (message,) = read(user("one two three"))
    notes = (Note(kind=Kind.RECALL, before=0, quotes=(Quote(0, 4, 7), Quote(1, 0, 9))),)

    assert missing(Ledger(drops=frozenset({0}), notes=notes), 0, message) == ((0, 4), (7, 13))


def test_spans_lose_what_overlaps_them() -> None:
    assert without(((0, 10), (20, 30)), [(5, 22), (28, 40), (1, 2)]) == ((0, 1), (2, 5), (22, 28))


def test_results_are_found_by_the_tool_that_was_called() -> None:
    legacy = [
        {"role": "assistant", "content": None, "function_call": {"name": "weigh", "arguments": "{}"}},
        {"role": "function", "name": "weigh", "content": "9 t"},
    ]
    messages = read(system(), *call(0, "a", name="vault"), *call(0, "b", name="tides"), *legacy)
    groups = grouping.group(messages)

    assert named_results(messages, groups, frozenset({"vault"})) == {2}
    assert named_results(messages, groups, frozenset({"tides", "weigh"})) == {4, 6}
    assert named_results(messages, groups, frozenset()) == frozenset()
