"""What later messages take up is worked out once for each message, and comes to the same as working it out anew."""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import mentions
from proxy import wire
from proxy.pipeline import uses as subject
from proxy.pipeline.uses import Use, said, used, uses
from proxy.wire.history import History
from proxy.wire.memo import Memo
from proxy.wire.request import Chat
from tests.proxy.dialogues import Message, assistant, body, call, system, user, words

LONG = words(1200)  # so that a body is long enough to be kept


class Reader:
    """Reads requests, each as what it adds to the one before."""

    def __init__(self) -> None:
        self._memo: Memo[object] = Memo()
        self._history = History()

    def read(self, messages: Sequence[Message]) -> Chat:
        raw = body(messages)
        return wire.parse(raw, self._memo, self._history, wire.peek(raw, self._history))


TALK = [
    system(LONG),
    user("Parcel 4711 for Bremen has not arrived"),
    *call(1, "parcel 4711 Bremen depot"),
    assistant("What a fine day."),
    user("Parcel 4711 for Bremen, again"),
    user("Depot Bremen?"),
]


def test_a_group_takes_up_those_before_it() -> None:
    found = said(wire.parse(body(TALK)))

    assert [list(each.takes) for each in found] == [[], [], [1], [], [1, 2], [2, 4]]
    assert uses(found, range(6)) == {1: Use(4, 2), 2: Use(5, 2), 4: Use(5, 1)}
    assert uses(found, [0, 1, 5]) == {}, "what is gone takes nothing up"


def test_a_note_is_taken_up_by_what_follows_it() -> None:
    found = said(wire.parse(body(TALK)))

    assert used("parcel 4711 Bremen", found, [3, 4, 5]) == Use(5, 2)
    assert used("nothing like it", found, [3, 4, 5]) is None
    assert used("parcel 4711 Bremen", found, []) is None


def test_what_a_request_adds_is_all_that_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counting(everything: Sequence[mentions.Words], start: int = 0) -> list[tuple[int, ...]]:
        compared.append(len(everything) - start)
        return mentions.mentions(everything, start)

    monkeypatch.setattr(subject, "mentions", counting)
    reader = Reader()
    for length in (5, 7, 7):
        said(reader.read(TALK[:length]))

    assert compared == [4, 2, 0], "groups: the call and its result are one"


late = st.sampled_from([user("Bremen depot parcel"), user("a day"), assistant("depot parcel 4711"), *call(7, "Bremen")])


@settings(max_examples=60, deadline=None)
@given(added=st.lists(late, min_size=1, max_size=12), cuts=st.lists(st.integers(1, 12), max_size=3))
def test_piece_by_piece_is_the_same_as_at_once(added: list[Message], cuts: list[int]) -> None:
    """Results that come late, or without their call, included."""
    messages = [*TALK, *added]
    reader = Reader()
    for cut in sorted(cuts):
        said(reader.read(messages[: len(TALK) + cut]))

    found, anew = said(reader.read(messages)), said(wire.parse(body(messages)))
    assert [each.takes for each in found] == [each.takes for each in anew]


def test_what_like_messages_take_up_is_small() -> None:
    """Two thousand messages with the same few words take half a million others up: all until the words are common."""
    found = said(wire.parse(body([user(f"tide berth crane {n % 3}") for n in range(2000)])))

    pairs = sum(len(each.takes) for each in found)
    assert pairs > 500_000
    assert sum(sys.getsizeof(each.takes) for each in found) < 5 * pairs
