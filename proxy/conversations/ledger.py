"""What was decided for a conversation, by reference: applied to the same messages it gives the same bytes. (pure)

A ledger speaks of the messages of one prefix by their index. It holds no text of any message: what was shortened is
cut again from the client's message, what was cleared is replaced by the policy's placeholder again, and notes quote
the client's messages again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from proxy.conversations.notes import Keys, Note, render
from proxy.wire.chat import Message, Part, Shape, Text
from proxy.wire.grouping import Group
from proxy.wire.splice import Edits
from proxy.wire.splice import Note as Insertion


@dataclass(frozen=True, slots=True)
class Truncation:
    """Part `part` of a message keeps its first `head` and last `tail` characters, with a marker between them."""

    part: int
    head: int
    tail: int

    def apply(self, text: str) -> str:
        """The shortened text."""
        left_out = len(text) - self.head - self.tail
        return f"{text[: self.head]}\n{MARKER.format(left_out)}\n{text[len(text) - self.tail :]}"


MARKER = "[… {} characters left out here to fit the context window …]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every action in force for a prefix of `length` messages, and the audit id of the decision that made it.

    `drops` are indexes of messages that are gone, `clears` maps tool messages to the placeholder that stands for
    their content, `truncations` maps messages to what was cut from their parts; `notes` stand in their order.
    """

    decision: str = ""
    length: int = 0
    drops: frozenset[int] = frozenset()
    clears: Mapping[int, str] = field(default_factory=dict)
    truncations: Mapping[int, tuple[Truncation, ...]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def rendered(self, messages: Sequence[Message], keys: Keys) -> Iterator[tuple[Note, str]]:
        """The notes with their texts; those left out that cannot be rendered any more."""
        for note in self.notes:
            if (text := render(note, messages, keys)) is not None:
                yield note, text

    def __bool__(self) -> bool:
        return bool(self.drops or self.clears or self.truncations or self.notes)

    def settled(self, groups: Sequence[Group], keep: frozenset[int], count: int) -> "Ledger":
        """The ledger for a longer list of `count` messages: no half groups, and nothing of those in `keep` gone.

        A late result joins the group of a call that has been dropped; sent alone it would be an orphan. A note about
        nothing but messages that are whole again goes.
        """
        drops = set(self.drops)
        for group in groups if keep else _joined(groups, self.length, count):
            if keep.intersection(group.messages):
                drops.difference_update(group.messages)
            elif drops.intersection(group.messages):
                drops.update(group.messages)
        clears = {i: text for i, text in self.clears.items() if i not in drops and i not in keep}
        cuts = {i: cuts for i, cuts in self.truncations.items() if i not in drops and i not in keep}
        notes = self.notes
        if keep:
            notes = tuple(note for note in notes if not drops.union(clears, cuts).isdisjoint(note.messages))
        return replace(self, drops=frozenset(drops), clears=clears, truncations=cuts, notes=notes)

    def message(self, index: int, message: Message) -> Message | None:
        """Message `index` as it is sent: None if dropped, with a digest of its own if changed."""
        if index in self.drops:
            return None
        if (placeholder := self.clears.get(index)) is not None:
            return _changed(message, {0: placeholder}, whole=True)
        if cuts := self.truncations.get(index):
            return _changed(message, _texts(message, cuts), whole=False)
        return message

    def edits(self, messages: Sequence[Message], keys: Keys | None = None) -> Edits:
        """The ledger as edits of the client's own bytes; `keys` are those that its notes were made with."""
        return Edits(
            drop=self.drops,
            contents=dict(self.clears),
            texts={
                (index, part): text
                for index, cuts in self.truncations.items()
                for part, text in _texts(messages[index], cuts).items()
            },
            notes=tuple(
                Insertion(before=note.before, text=text, merge=note.merge)
                for note, text in self.rendered(messages, keys or Keys())
            ),
        )


def _joined(groups: Sequence[Group], length: int, count: int) -> Iterator[Group]:
    """The groups that messages from `length` up to `count` may have joined: only these can be half gone."""
    new = count - length
    for group in reversed(groups):
        if new <= 0:
            return
        if group.messages[-1] >= length:
            new -= sum(index >= length for index in group.messages)
            if len(group.messages) > 1:
                yield group


def _texts(message: Message, cuts: Sequence[Truncation]) -> dict[int, str]:
    parts = message.parts
    return {cut.part: cut.apply(part.text) for cut in cuts if isinstance(part := parts[cut.part], Text)}


def _changed(message: Message, texts: Mapping[int, str], *, whole: bool) -> Message:
    """The message with other texts; the digest follows, so that its tokens are counted once as well."""
    if whole:
        parts: tuple[Part, ...] = (Text(texts[0]),)
    else:
        parts = tuple(Text(texts[i]) if i in texts else part for i, part in enumerate(message.parts))
    digest = blake2b(message.digest, digest_size=16)
    for index, text in texts.items():
        digest.update(b"%d:" % index)
        digest.update(text.encode("utf-8", "surrogatepass"))
    shape = Shape.STRING if whole else message.shape
    return replace(message, parts=parts, shape=shape, digest=digest.digest())
