"""Notes where they stand in a prompt: their texts, and what each of them adds to it. (pure)"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby

from policies.types import Slot
from proxy.conversations.notes import Note
from proxy.wire.chat import Message, Shape, Text
from proxy.wire.splice import GAP


@dataclass(frozen=True, slots=True)
class Placed:
    """A note with its text and what it adds to the prompt, in tokens."""

    note: Note
    text: str
    tokens: int

    def slot(self, turn: int, created_at: float | None = None) -> Slot:
        """The live note as a slot; `turn` and `created_at` are those of the oldest slot that it speaks of."""
        return Slot(
            id=self.note.id,
            role="user",
            kind=self.note.kind,
            text=self.text,
            tokens=self.tokens,
            turn=turn,
            created_at=created_at,
            priority=self.note.priority,
            reference_count=self.note.references,
        )


def place(
    notes: Iterable[tuple[Note, str]], sent: Sequence[Message | None], count: Callable[[Message], int]
) -> Iterator[Placed]:
    """The notes with what they add; of those merged into one message each takes what joining it costs."""
    for (before, merge), some in groupby(notes, key=lambda each: (each[0].before, each[0].merge)):
        host = sent[before] if merge and before < len(sent) else None
        opening: list[str] = []
        added = 0
        for note, text in some:
            opening.append(text)
            if host is None:
                yield Placed(note, text, count(alone(text)))
            else:
                total = count(merged(host, opening)) - count(host)
                yield Placed(note, text, total - added)
                added = total


def alone(text: str) -> Message:
    """The message that a note is where it stands by itself."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=b"trimtab note").digest()
    return Message(role="user", digest=digest, size=len(text), shape=Shape.STRING, parts=(Text(text),))


def merged(host: Message, opening: Sequence[str]) -> Message:
    """A user's message with notes as its first words, as `splice` puts them there."""
    text = GAP.join(opening)
    digest = blake2b(host.digest, digest_size=16, person=b"trimtab merged")
    digest.update(text.encode("utf-8", "surrogatepass"))
    if host.shape is Shape.PARTS:
        return replace(host, parts=(Text(text), *host.parts), digest=digest.digest())
    own = host.parts[0].text if host.parts and isinstance(host.parts[0], Text) else None
    whole = text if own is None else f"{text}{GAP}{own}"
    return replace(host, shape=Shape.STRING, parts=(Text(whole),), digest=digest.digest())


def takes_notes(message: Message) -> bool:
    """Whether notes can be the first words of a message: a user's with a content that they can stand before."""
    return message.role == "user" and message.shape not in (Shape.MISSING, Shape.OTHER)
