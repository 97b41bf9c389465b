"""An entry as bytes for a store: small, versioned, and without a word of any message.

A version byte, then msgpack. Indexes are written as runs (gap, length), since what is dropped mostly stands together;
placeholders once each, however many messages they stand for, and sealed where there is a key: the configuration
wrote them, or a policy from elsewhere, which may have put anything there. A summary that a model wrote comes sealed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from policies.types import Kind
from proxy.conversations.known import Entry, Runs, Seen
from proxy.conversations.ledger import Ledger, Truncation
from proxy.conversations.notes import Note, Quote

VERSION = 2
MAX_INDEX = 1_000_000
"""No message of a request has an index this large; bytes that say so are broken."""


class Seal(Protocol):
    """Encrypts what may hold text. `open` gives None for what was not sealed with the same key."""

    def seal(self, plain: bytes) -> bytes:
        """The sealed form."""
        ...

    def open(self, sealed: bytes) -> bytes | None:
        """What was sealed."""
        ...


class _Clear(msgspec.Struct, array_like=True, frozen=True):
    text: int
    indexes: list[int]


class _Cut(msgspec.Struct, array_like=True, frozen=True):
    index: int
    parts: list[tuple[int, int, int]]


class _Note(msgspec.Struct, array_like=True, frozen=True):
    summary: bool
    before: int
    quotes: list[tuple[int, int, int]]
    covers: list[int]
    merge: bool
    template: int
    priority: int
    references: int
    sealed: bytes | None


class _Stored(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    conversation: str
    seen: list[int]
    decision: str
    length: int
    drops: list[int]
    texts: bytes
    clears: list[_Clear]
    cuts: list[_Cut]
    notes: list[_Note]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)
_texts = msgspec.msgpack.Decoder(list[bytes])


class _BrokenError(ValueError):
    """Bytes that no entry has."""


def encode(entry: Entry, seal: Seal | None = None) -> bytes:
    """The entry as bytes."""
    ledger = entry.ledger
    places: dict[str, list[int]] = {}
    for index, text in sorted(ledger.clears.items()):
        places.setdefault(text, []).append(index)
    texts = _encoder.encode([text.encode("utf-8", "surrogatepass") for text in places]) if places else b""
    stored = _Stored(
        conversation=entry.conversation,
        seen=_steps(entry.seen),
        decision=ledger.decision,
        length=ledger.length,
        drops=_runs(sorted(ledger.drops)),
        texts=seal.seal(texts) if seal is not None and texts else texts,
        clears=[_Clear(number, _runs(indexes)) for number, indexes in enumerate(places.values())],
        cuts=[
            _Cut(index, [(cut.part, cut.head, cut.tail) for cut in cuts])
            for index, cuts in sorted(ledger.truncations.items())
        ],
        notes=[_stored_note(note) for note in ledger.notes],
    )
    return bytes([VERSION]) + _encoder.encode(stored)


def decode(raw: bytes, seal: Seal | None = None) -> Entry | None:
    """The entry in `raw`; None for another version, another key, or bytes that are broken."""
    if not raw or raw[0] != VERSION:
        return None
    try:
        return _entry(_decoder.decode(memoryview(raw)[1:]), seal)
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError, _BrokenError):
        return None


def _entry(stored: _Stored, seal: Seal | None) -> Entry:
    sealed = seal.open(stored.texts) if seal is not None and stored.texts else stored.texts
    if sealed is None:
        raise _BrokenError("sealed with another key")
    texts = [text.decode("utf-8", "surrogatepass") for text in _texts.decode(sealed)] if sealed else []
    clears = {index: texts[clear.text] for clear in stored.clears for index in _indexes(clear.indexes)}
    return Entry(
        conversation=stored.conversation,
        seen=_seen(stored.seen),
        ledger=Ledger(
            decision=stored.decision,
            length=stored.length,
            drops=frozenset(_indexes(stored.drops)),
            clears=dict(sorted(clears.items())),
            truncations={cut.index: tuple(Truncation(*part) for part in cut.parts) for cut in stored.cuts},
            notes=tuple(_note(note) for note in stored.notes),
        ),
    )


def _stored_note(note: Note) -> _Note:
    return _Note(
        summary=note.kind is Kind.SUMMARY,
        before=note.before,
        quotes=[(quote.message, quote.start, quote.end) for quote in note.quotes],
        covers=_runs(note.covers),
        merge=note.merge,
        template=note.template,
        priority=note.priority,
        references=note.references,
        sealed=note.sealed,
    )


def _note(stored: _Note) -> Note:
    numbers = (stored.before, *(number for quote in stored.quotes for number in quote))
    covers = tuple(_indexes(stored.covers))
    if min(numbers) < 0 or bool(covers) != stored.summary:
        raise _BrokenError("a note that nothing can be made of")
    return Note(
        kind=Kind.SUMMARY if stored.summary else Kind.RECALL,
        before=stored.before,
        quotes=tuple(Quote(*quote) for quote in stored.quotes),
        covers=covers,
        merge=stored.merge,
        template=stored.template,
        priority=stored.priority,
        references=stored.references,
        sealed=stored.sealed,
    )


def _runs(indexes: Iterable[int]) -> list[int]:
    """Rising indexes as pairs: how many are left out, how many follow one another."""
    runs: list[int] = []
    end = 0
    for index in indexes:
        if runs and index == end:
            runs[-1] += 1
        else:
            runs += (index - end, 1)
        end = index + 1
    return runs


def _indexes(runs: Sequence[int]) -> Iterator[int]:
    end = 0
    for gap, length in _pairs(runs):
        if not (0 <= gap <= MAX_INDEX and 0 < length <= MAX_INDEX - end):
            raise _BrokenError("an index that no message has")
        yield from range(end + gap, end + gap + length)
        end += gap + length


def _steps(seen: Runs) -> list[int]:
    """Runs as pairs of differences, which stay small."""
    steps: list[int] = []
    first = at = 0
    for run in seen:
        steps += (run.first - first, run.at - at)
        first, at = run
    return steps


def _seen(steps: Sequence[int]) -> Runs:
    runs = []
    first = at = 0
    for messages, seconds in _pairs(steps):
        first, at = first + messages, at + seconds
        runs.append(Seen(first, at))
    return tuple(runs)


def _pairs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    if len(numbers) % 2:
        raise _BrokenError("half a pair")
    return zip(numbers[::2], numbers[1::2], strict=True)
