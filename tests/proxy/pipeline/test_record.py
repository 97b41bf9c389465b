"""A plan written into a ledger: summaries stand where their oldest message stood, and take in those before them."""

from dataclasses import replace

import pytest

from policies.plan import Evict, Plan, Summarize
from policies.types import Kind
from proxy import tokens, wire
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Note, Quote
from proxy.pipeline.prompt import Prompt, assemble
from proxy.pipeline.record import Written, outside, place, record, write
from proxy.wire import grouping
from proxy.wire.chat import Message
from proxy.wire.splice import splice
from tests.proxy.dialogues import assistant, body, call, system, user

COUNTER = tokens.counter("gpt-4o")
TALK = [
    system(),
    user("one"),
    assistant("two"),
    *call(0, "three"),
    assistant("four"),
    user("five"),
    assistant("six"),
    user("now"),
]


def prompt(messages: list[dict[str, object]], ledger: Ledger | None = None) -> Prompt:
    read: tuple[Message, ...] = wire.parse(body(messages)).messages
    return assemble(read, grouping.group(read), ledger or Ledger(), 0, COUNTER.message)


def quoting(note: Note, room: int, before: object) -> Note:
    return replace(note, quotes=(Quote(note.covers[0], 0, 3),))


def done(plan: Plan, ledger: Ledger | None = None, *, merge: bool = False) -> Ledger:
    ledger = ledger or Ledger()
    seen = prompt(TALK, ledger)
    return record(write(plan, seen, ledger, quoting, merge=merge), seen, ledger)


def plan(*actions: Evict | Summarize) -> Plan:
    return Plan("test", actions)


FIRST = Summarize(("m2", "m3"), "old", 40)


def test_a_summary_stands_at_the_place_of_its_oldest_message() -> None:
    ledger = done(plan(Evict("m1", None, "old"), FIRST))

    assert ledger.drops == {1, 2, 3, 4}
    (note,) = ledger.notes
    assert (note.id, note.before, note.covers, note.merge) == ("s2", 2, (2, 3, 4), False)
    assert (note.priority, note.references) == (70, 0)


def test_merged_it_opens_the_next_message_of_a_user() -> None:
    (note,) = done(plan(FIRST), merge=True).notes

    assert (note.before, note.merge) == (6, True)


def test_a_merged_summary_moves_on_with_the_message_that_held_it() -> None:
    before = done(plan(FIRST), merge=True)
    after = done(plan(Evict("m6", None, "old"), Evict("m7", None, "old")), before, merge=True)

    assert [(note.before, note.merge) for note in after.notes] == [(8, True)]


def test_a_later_summary_takes_an_earlier_one_in() -> None:
    before = done(plan(FIRST))
    after = done(plan(Summarize(("s2", "m5", "m6"), "older", 60, priority=65, references=3)), before)

    (note,) = after.notes
    assert note.covers == (2, 3, 4, 5, 6)
    assert (note.before, note.priority, note.references) == (2, 65, 3)
    assert after.drops == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("name", ["s2", "m2"])
def test_a_summary_may_be_evicted_by_its_name_or_that_of_its_oldest(name: str) -> None:
    after = done(plan(Evict(name, None, "full")), done(plan(FIRST)))

    assert after.notes == ()
    assert after.drops == {2, 3, 4}


def test_a_summary_that_is_of_no_use_is_an_eviction() -> None:
    seen = prompt(TALK)
    written = write(plan(FIRST), seen, Ledger(), lambda *_: None, merge=False)

    assert [action.slot for action in written.plan.actions if isinstance(action, Evict)] == ["m2", "m3"]
    assert "no summary of it would be short" in written.plan.actions[0].reason
    assert record(written, seen, Ledger()).notes == ()
    assert write(plan(FIRST), seen, Ledger(), None, merge=False).notes == {}


def test_no_note_stands_between_a_call_and_its_result() -> None:
    interrupted = [system(), call(0, "")[0], user("wait"), call(0, "late")[1], user("now")]
    groups = prompt(interrupted).groups

    assert [outside(groups, index) for index in range(6)] == [0, 1, 1, 1, 4, 5]


def test_a_note_without_a_message_to_open_stands_alone() -> None:
    seen = prompt([system(), assistant("one"), assistant("two")])
    note = Note(kind=Kind.SUMMARY, before=1, covers=(1,))

    assert place(note, seen, frozenset({1}), merge=True) == note


def test_the_prompt_counts_what_is_sent() -> None:
    """Alone or merged, several in one message too."""
    chat = wire.parse(body(TALK))
    for merge in (False, True):
        ledger = done(plan(Summarize(("m1",), "a", 40), Summarize(("m2", "m3"), "b", 40)), merge=merge)
        sent = wire.parse(splice(chat, ledger.edits(chat.messages))).messages

        assert prompt(TALK, ledger).used == sum(map(COUNTER.message, sent))
        assert len(sent) == len(TALK) - 4 + (0 if merge else 2)
    assert record(Written(plan()), prompt(TALK), Ledger()) == Ledger()
