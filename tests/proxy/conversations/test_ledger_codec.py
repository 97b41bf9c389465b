"""Entries come back from their bytes as they were; bytes that are not an entry's are nothing."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.types import Kind
from proxy.conversations.known import Entry, Runs, extend
from proxy.conversations.ledger import Ledger, Truncation
from proxy.conversations.ledger_codec import VERSION, decode, encode
from proxy.conversations.notes import Note, Quote

INDEXES = st.integers(0, 5_000)
CUTS = st.builds(Truncation, part=st.integers(0, 9), head=st.integers(0, 10**6), tail=st.integers(0, 10**6))
QUOTES = st.lists(st.builds(Quote, message=INDEXES, start=INDEXES, end=INDEXES), max_size=4).map(tuple)
RECALLS = st.builds(Note, kind=st.just(Kind.RECALL), before=INDEXES, quotes=QUOTES, merge=st.booleans())
SUMMARIES = st.builds(
    Note,
    kind=st.just(Kind.SUMMARY),
    before=INDEXES,
    quotes=QUOTES,
    covers=st.sets(INDEXES, min_size=1, max_size=9).map(lambda found: tuple(sorted(found))),
    template=st.integers(1, 3),
    priority=st.integers(0, 100),
    references=st.integers(0, 9),
    sealed=st.none() | st.binary(max_size=9),
)
LEDGERS = st.builds(
    Ledger,
    notes=st.lists(RECALLS | SUMMARIES, max_size=3).map(tuple),
    decision=st.text("0123456789abcdef", max_size=16),
    length=st.integers(0, 10_000),
    drops=st.frozensets(INDEXES, max_size=30),
    clears=st.dictionaries(INDEXES, st.sampled_from(["[cleared]", "[gone: \ud83d]", ""]), max_size=10),
    truncations=st.dictionaries(INDEXES, st.lists(CUTS, min_size=1, max_size=3).map(tuple), max_size=5),
)
RUNS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 10**6)), max_size=20).map(lambda steps: runs_of(steps))
ENTRIES = st.builds(Entry, ledger=LEDGERS, conversation=st.text("0123456789abcdef", max_size=16), seen=RUNS)


def runs_of(steps: list[tuple[int, int]]) -> Runs:
    runs: Runs = ()
    length, now = 0, 1_700_000_000
    for messages, seconds in steps:
        now += seconds
        runs = extend(runs, length, length + messages, now)
        length += messages
    return runs


class Xor:
    """A seal of the kind that a test can see through."""

    def __init__(self, key: int) -> None:
        self.key = key

    def seal(self, plain: bytes) -> bytes:
        return bytes([self.key, *(byte ^ self.key for byte in plain)])

    def open(self, sealed: bytes) -> bytes | None:
        return bytes(byte ^ self.key for byte in sealed[1:]) if sealed[0] == self.key else None


@settings(max_examples=200, deadline=None)
@given(ENTRIES, st.sampled_from([None, Xor(7)]))
def test_an_entry_comes_back_as_it_was(entry: Entry, seal: Xor | None) -> None:
    assert decode(encode(entry, seal), seal) == entry


def test_every_field_of_a_ledger_and_an_entry_is_written() -> None:
    full = Ledger(
        decision="d",
        length=9,
        drops=frozenset({1}),
        clears={2: "x"},
        truncations={3: (Truncation(0, 1, 2),)},
        notes=(
            Note(
                kind=Kind.SUMMARY,
                before=3,
                quotes=(Quote(1, 2, 3),),
                covers=(1, 4),
                merge=True,
                template=7,
                priority=70,
                references=2,
                sealed=b"?",
            ),
        ),
    )
    empty = Ledger()
    assert all(getattr(full, f.name) != getattr(empty, f.name) for f in dataclasses.fields(Ledger)), (
        "a new field of Ledger: write it in ledger_codec, raise its VERSION, and add it here"
    )
    assert {field.name for field in dataclasses.fields(Entry)} == {"ledger", "conversation", "seen"}
    entry = Entry(ledger=full, conversation="c", seen=extend((), 0, 9, 5))

    assert decode(encode(entry)) == entry


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_an_entry_or_nothing(raw: bytes) -> None:
    for bytes_ in (raw, bytes([VERSION]) + raw):
        assert decode(bytes_) is None or isinstance(decode(bytes_), Entry)


ENTRY = Entry(ledger=Ledger(drops=frozenset(range(40)), clears={50: "[cleared]"}), conversation="c0ffee")


@settings(deadline=None)
@given(st.data())
def test_damaged_bytes_never_raise(data: st.DataObject) -> None:
    raw = bytearray(encode(ENTRY))
    for position in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=3)):
        raw[position] = data.draw(st.integers(0, 255))

    decode(bytes(raw))


def test_another_version_is_nothing() -> None:
    raw = encode(ENTRY)

    assert decode(bytes([VERSION + 1]) + raw[1:]) is None
    assert decode(b"") is None


def test_an_index_far_beyond_any_request_is_nothing() -> None:
    huge = Entry(ledger=Ledger(drops=frozenset({10**7})))

    assert decode(encode(huge)) is None


def test_placeholders_are_sealed() -> None:
    raw = encode(ENTRY, Xor(7))

    assert b"cleared" in encode(ENTRY)
    assert b"cleared" not in raw
    assert decode(raw, Xor(8)) is None


@pytest.mark.parametrize(
    ("ledger", "limit"),
    [
        pytest.param(Ledger(decision="0" * 16, length=5_000, drops=frozenset(range(1, 4_000))), 80, id="a long past"),
        pytest.param(
            Ledger(decision="0" * 16, length=400, clears=dict.fromkeys(range(2, 400, 2), "[tool result cleared]")),
            500,
            id="200 cleared results",
        ),
    ],
)
def test_entries_are_small(ledger: Ledger, limit: int) -> None:
    assert len(encode(Entry(ledger=ledger, conversation="0" * 16))) < limit
