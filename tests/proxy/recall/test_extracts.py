"""An extractive summary says what the messages have in common, in their own words, in the room that there is."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from policies.relevance import Vectors
from policies.types import Kind
from proxy import tokens, wire
from proxy.conversations.notes import Keys, Note, Quote, render
from proxy.conversations.placed import alone
from proxy.recall.extracts import extract
from proxy.recall.library import Library
from tests.proxy.dialogues import assistant, body, user

COUNTER = tokens.counter("gpt-4o")
TALK = wire.parse(
    body(
        [
            user("The Halcyon needs a berth with 9 metres of depth and a crane. Thanks!"),
            assistant("Sure."),
            user("Berth B7 has a crane and 9 metres of depth. My aunt says hello."),
            assistant("Then the Halcyon goes to berth B7, which has the crane and the depth. OK?"),
            user("OK, thanks."),
        ]
    )
).messages


def cost(note: Note) -> int:
    return COUNTER.message(alone(render(note, TALK, Keys(b"key")) or ""))


def summary(
    room: int, vectors: Mapping[int, Vectors] | None = None, before: Sequence[Note] = (), covers: tuple[int, ...] = ()
) -> Note | None:
    note = Note(kind=Kind.SUMMARY, before=0, covers=covers or (0, 1, 2, 3, 4))
    return extract(
        note, TALK, room, library=Library(), count=COUNTER.content, cost=cost, vectors=vectors, before=before
    )


def said(note: Note | None) -> list[str]:
    return [] if note is None else [TALK[q.message].text[q.start : q.end] for q in note.quotes]


def test_facts_go_before_confirmations_and_asides() -> None:
    text = " ".join(said(summary(130)))

    assert "Halcyon" in text
    assert "B7" in text
    assert not any(idle in text for idle in ("Sure", "hanks", "OK"))


@pytest.mark.parametrize("room", [1, 30, 60, 80, 100, 150, 400])
def test_it_costs_no_more_than_it_may(room: int) -> None:
    note = summary(room)

    assert note is None or cost(note) <= room
    assert (note is not None) == (room >= 60)


def test_messages_near_the_middle_of_all_are_heard_first() -> None:
    towards, away = np.eye(1, 8, 0, dtype=np.float32), np.eye(1, 8, 1, dtype=np.float32)

    def heard(odd: int) -> set[int]:
        note = summary(400, {i: away if i == odd else towards for i in (0, 2, 3)}, covers=(0, 2, 3))
        return {quote.message for quote in note.quotes} if note is not None else set()

    assert 2 in heard(odd=0)
    assert 2 not in heard(odd=2)


def test_what_an_earlier_summary_kept_is_kept_before_others() -> None:
    aside = TALK[2].text.index("My aunt")
    earlier = Note(kind=Kind.SUMMARY, before=0, covers=(2,), quotes=(Quote(2, aside, len(TALK[2].text)),))

    assert "My aunt says hello." not in said(summary(400))
    assert any("My aunt says hello." in text for text in said(summary(400, before=[earlier])))


def test_of_nothing_there_is_no_summary() -> None:
    empty = wire.parse(body([assistant("")])).messages
    note = Note(kind=Kind.SUMMARY, before=0, covers=(0,))

    assert extract(note, empty, 500, library=Library(), count=COUNTER.content, cost=cost) is None
