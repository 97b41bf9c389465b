"""Notes: what was left out and comes back as quotes or a summary, by reference, and the text it makes again. (pure)

A note names messages and ranges of characters in them. It holds no text, but for a summary that a model wrote, and
that one sealed. Rendered from the client's own messages it gives the same text every time, whoever renders it:
the template that it was made with is part of it, and an old template is never changed.

The fence around quotes is a number derived from a secret, the note and the messages it quotes, so that nobody who
writes a message can know it; and one that occurs in none of the texts is taken, so that no quote can end early,
whatever it guesses.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count, groupby

from policies.types import Kind
from proxy.conversations.templates import LATEST, TEMPLATES, Template
from proxy.wire.chat import Message

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")  # what OpenAI takes for a name; others could hold anything
_GAP = " […] "  # between two quotes of a message
_DRAWS = 64  # after so many fences that a text holds, a longer one is drawn: all short ones fit into a text
_LONG = 9  # digits


@dataclass(frozen=True, slots=True, order=True)
class Quote:
    """Characters `start` to `end` of the readable text of message `message`."""

    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note that stands before message `before`, as a user's message or, with `merge`, as its first words.

    `quotes` are in the order in which they are rendered. A summary `covers` the messages that it stands for, and has
    the `priority` and `references` of their slot; `sealed` is its text where a model wrote it.
    """

    kind: Kind
    before: int
    quotes: tuple[Quote, ...] = ()
    covers: tuple[int, ...] = ()
    merge: bool = False
    template: int = LATEST
    priority: int = 0
    references: int = 0
    sealed: bytes | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        """The name of its slot in plans and audit records."""
        return f"s{self.covers[0]}" if self.kind is Kind.SUMMARY else f"r{self.before}"

    @property
    def messages(self) -> tuple[int, ...]:
        """The messages that it speaks of."""
        return self.covers or tuple(dict.fromkeys(quote.message for quote in self.quotes))


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets that notes are rendered with: what fences are derived from, and what opens sealed texts."""

    fence: bytes = field(default=b"", repr=False)
    open: Callable[[bytes], bytes | None] | None = field(default=None, repr=False)


def render(note: Note, messages: Sequence[Message], keys: Keys) -> str | None:
    """The text of a note; None where there is none: its messages are not these, or another key sealed it."""
    written = None
    if note.sealed is not None:
        opened = note.sealed if keys.open is None else keys.open(note.sealed)
        if opened is None:
            return None
        written = opened.decode("utf-8", "surrogatepass")
    if note.before > len(messages) or any(index >= len(messages) for index in note.messages):
        return None
    template = TEMPLATES.get(note.template)
    if template is None:
        return None
    sections = [(label(messages[index], index, whole), text) for index, whole, text in _sections(note, messages)]
    if written is not None:
        sections = [("summary", written)]
    if not sections:
        return None
    fence = _fence(note, messages, [text for _, text in sections], keys.fence, template.digits)
    lines = [_opening(note, template, written is not None).format(mark=fence, covers=ranges(note.covers))]
    for head, text in sections:
        lines += [f"{fence} {head}:", text]
    return "\n".join((*lines, template.end.format(mark=fence)))


def label(message: Message, index: int, whole: bool) -> str:
    """How a quote of message `index` is introduced: its position, who said it, and whether that is `whole` of it."""
    name = f" {message.name}" if message.name and _NAME.match(message.name) else ""
    return f"#{index} {message.role}{name}{'' if whole else ', in part'}"


def ordered(notes: Iterable[Note]) -> tuple[Note, ...]:
    """The notes in the order in which they stand: at one place summaries before recall, and merged ones last."""
    return tuple(sorted(notes, key=lambda note: (note.before, note.merge, note.kind is Kind.RECALL)))


def ranges(indexes: Sequence[int]) -> str:
    """Rising message numbers in words: 3-7, 9."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _opening(note: Note, template: Template, written: bool) -> str:
    if note.kind is Kind.RECALL:
        return template.recall
    return template.written if written else template.remains


def _sections(note: Note, messages: Sequence[Message]) -> Iterator[tuple[int, bool, str]]:
    """For each quoted message: its index, whether it is quoted whole, and the quotes."""
    for index, quotes in groupby(note.quotes, key=lambda quote: quote.message):
        text = messages[index].text
        found = [text[quote.start : quote.end] for quote in quotes]
        if any(found):
            yield index, found == [text], _GAP.join(piece for piece in found if piece)


def _fence(note: Note, messages: Sequence[Message], texts: Sequence[str], key: bytes, digits: int) -> str:
    seed = blake2b(key=key[:64], digest_size=32, person=b"trimtab fence")
    spans = [number for quote in note.quotes for number in (quote.message, quote.start, quote.end)]
    seed.update(repr((note.kind.value, note.before, note.covers, spans, note.template)).encode())
    for index in note.messages:
        seed.update(messages[index].canonical or messages[index].digest)
    seed.update(note.sealed or b"")
    for attempt in count():
        drawn = blake2b(seed.digest(), digest_size=8, salt=attempt.to_bytes(8, "big"))
        least = 10 ** ((digits if attempt < _DRAWS else max(digits, _LONG)) - 1)
        fence = str(int.from_bytes(drawn.digest(), "big") % (9 * least) + least)
        if not any(fence in text for text in texts):
            return fence
    raise AssertionError("unreachable: no text holds every number")
