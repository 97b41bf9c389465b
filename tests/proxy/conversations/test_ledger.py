"""A ledger speaks by reference and gives the same message again and again."""

import pytest

from policies.types import Kind
from proxy import wire
from proxy.conversations.ledger import Ledger, Truncation
from proxy.wire import grouping
from proxy.wire.chat import Message, Text
from proxy.wire.grouping import Group
from proxy.wire.splice import splice
from tests.proxy.dialogues import agent, assistant, body, call, system, user


def read(messages: list[dict[str, object]]) -> tuple[Message, ...]:
    return wire.parse(body(messages)).messages


def test_a_truncation_keeps_both_ends_and_says_what_is_missing() -> None:
    assert Truncation(0, 3, 2).apply("abcdefghij") == (
        "abc\n[… 5 characters left out here to fit the context window …]\nij"
    )


def test_what_is_dropped_is_gone_and_what_is_changed_has_a_digest_of_its_own() -> None:
    messages = read(agent(2))
    ledger = Ledger(drops=frozenset({2, 3}), clears={5: "[gone]"}, truncations={1: (Truncation(0, 4, 6),)})

    sent = [ledger.message(i, message) for i, message in enumerate(messages)]

    assert sent[0] is messages[0]
    assert sent[2] is None
    assert sent[3] is None
    assert sent[4] is messages[4]
    assert sent[5] is not None
    assert sent[5].parts == (Text("[gone]"),)
    assert sent[1] is not None
    assert sent[1].text.startswith("Find\n[… ")
    assert len({m.digest for m in (*messages, *sent) if m is not None}) == len(messages) + 2
    again = ledger.message(5, messages[5])
    assert again is not None
    assert again.digest == sent[5].digest


def test_the_same_ledger_renders_the_same_bytes_in_a_longer_conversation() -> None:
    short, long = agent(4), agent(6)
    ledger = Ledger(drops=frozenset({2, 3}), clears={5: "[gone]"}, truncations={7: (Truncation(0, 4, 6),)})

    one, other = (
        splice(chat, ledger.edits(chat.messages)) for chat in (wire.parse(body(short)), wire.parse(body(long)))
    )

    assert other.startswith(one.removesuffix(b"]}"))


def test_a_late_result_follows_its_dropped_call() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": [*_calls("a"), *_calls("b")]}
    messages = read(
        [
            user("go"),
            asked,
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            user("and?"),
        ]
    )

    settled = Ledger(drops=frozenset({1, 2})).settled(grouping.group(messages), frozenset(), len(messages))

    assert settled.drops == {1, 2, 3}


def test_what_the_client_pins_comes_back_whole() -> None:
    messages = read([system(), user("task"), *call(0, "first"), *call(1, "second"), assistant("done"), user("next")])
    ledger = Ledger(drops=frozenset({2, 3}), clears={5: "[gone]"})

    settled = ledger.settled(grouping.group(messages), frozenset({3, 5}), len(messages))

    assert not settled.drops
    assert not settled.clears


def test_an_empty_ledger_is_false() -> None:
    assert not Ledger(decision="x", length=4)
    assert Ledger(drops=frozenset({1}))


def _calls(name: str) -> list[dict[str, object]]:
    return [{"id": name, "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]


@pytest.mark.parametrize("length", [0, 2, 3, 4, 5, 6])
def test_whatever_was_whole_when_it_was_decided_about_only_what_came_later_is_looked_at(length: int) -> None:
    """However many messages a decision knew, a group that it dropped takes what joins it later along."""
    groups = (
        Group((0,), Kind.DIALOGUE, "user"),
        Group((1, 2, 5), Kind.TOOL, "tool"),
        Group((3,), Kind.DIALOGUE, "user"),
        Group((4, 6), Kind.TOOL, "tool"),
    )
    drops = frozenset({0} | {i for i in (1, 2, 5) if i < max(length, 2)})

    found = Ledger(length=length, drops=drops, clears={6: "gone"}).settled(groups, frozenset(), 7)

    assert found.drops == {0, 1, 2, 5}
    assert found.clears == {6: "gone"}
