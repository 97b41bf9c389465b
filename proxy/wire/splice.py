"""The body as it goes out: the client's own bytes with messages cut out, replaced or put in between.

Whatever no edit names leaves byte for byte, inside an edited message too: escapes, number literals, unknown keys,
the order of keys, white space.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from proxy.wire import Chat, rawjson
from proxy.wire.chat import Shape, Text

GAP = "\n\n"
"""Between a note and the client's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text put before message `before`, or at the end if that is the number of messages.

    It becomes a user message of its own or, with `merge`, the first words of that message, which must be a user's.
    """

    before: int
    text: str
    merge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What to change in a request; messages are named by index.

    `drop`: they leave. `contents`: the whole content becomes this string, which every provider takes for every
    role. `texts`: part p of message i gets this text; the content of a string is part 0. `notes` go in, in order.
    """

    drop: frozenset[int] = frozenset()
    contents: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    texts: Mapping[tuple[int, int], str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[Note, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.drop or self.contents or self.texts or self.notes)

    def changed(self) -> frozenset[int]:
        """The messages that stay, with another content."""
        merged = (note.before for note in self.notes if note.merge)
        return frozenset((*self.contents, *(index for index, _ in self.texts), *merged))


def splice(chat: Chat, edits: Edits) -> bytes:
    """The request after `edits`; the very same bytes object if there are none.

    Raises ValueError, naming the edit, for one that cannot be made: an index out of range, a message dropped and
    changed at once, an empty text, a part that is no text, a merge into a message that is not a user's text,
    a list of messages that would be empty.
    """
    if not edits:
        return chat.body
    _check(chat, edits)
    changed = edits.changed()
    spans = chat.spans
    notes = [note for note in edits.notes if not note.merge]
    stops = edits.drop.union(changed, (note.before for note in notes))
    out: list[bytes] = []
    index, end = 0, len(spans)
    while index <= end:
        if notes and index in stops:
            for note in notes:
                if note.before == index:
                    lead = _lead(chat, index, first=not out)
                    out += (lead, b'{"role":"user","content":', rawjson.write(note.text), b"}")
        after = index + 1
        if index < end and index not in edits.drop:
            if index in changed:
                piece = _edited(chat, index, edits)
            else:  # with all that follow untouched, in one slice
                while after < end and after not in stops:
                    after += 1
                piece = chat.body[spans[index].start : spans[after - 1].end]
            out += (_lead(chat, index, first=not out), piece)
        index = after
    return b"".join((chat.body[: chat.array.start + 1], *out, chat.body[spans[-1].end :]))


def kept_slices(chat: Chat, edits: Edits) -> list[tuple[int, bytes]]:
    """Index and bytes of each message that goes out as the client wrote it."""
    gone = edits.drop | edits.changed()
    return [(index, chat.raw(index)) for index in range(len(chat.spans)) if index not in gone]


def _lead(chat: Chat, index: int, *, first: bool) -> bytes:
    """What stands before the element at `index`, in the client's own spacing: its separator unless it is the first."""
    spans = chat.spans
    if first:
        return chat.body[chat.array.start + 1 : spans[0].start]
    if not 0 < index < len(spans):
        index = 1
    return chat.body[spans[index - 1].end : spans[index].start] if len(spans) > 1 else b","


def _edited(chat: Chat, index: int, edits: Edits) -> bytes:
    raw = chat.raw(index)
    span = rawjson.members(raw).get("content")
    content = raw[span.start : span.end] if span else b""
    if index in edits.contents:
        content = rawjson.write(edits.contents[index])
    for (owner, part), text in edits.texts.items():
        if owner == index:
            content = _with_text(content, part, text)
    opening = GAP.join(note.text for note in edits.notes if note.merge and note.before == index)
    if opening:
        content = _opened(content, opening)
    if span is None:
        return b'{"content":' + content + b"," + raw[1:]
    return raw[: span.start] + content + raw[span.end :]


def _with_text(content: bytes, part: int, text: str) -> bytes:
    """The content with another text in one part."""
    if content.startswith(b'"'):
        return rawjson.write(text)
    outer = rawjson.elements(content)[part]
    inner = rawjson.members(content[outer.start : outer.end])["text"]
    return content[: outer.start + inner.start] + rawjson.write(text) + content[outer.start + inner.end :]


def _opened(content: bytes, opening: str) -> bytes:
    """The content with `opening` before everything that the client wrote there."""
    if content.startswith(b'"'):
        return rawjson.write(opening + GAP)[:-1] + content[1:]
    if content.startswith(b"["):
        part = b'[{"type":"text","text":' + rawjson.write(opening) + b"}"
        return part + (b"," if rawjson.elements(content) else b"") + content[1:]
    return rawjson.write(opening)


def _check(chat: Chat, edits: Edits) -> None:
    messages, count = chat.messages, len(chat.messages)
    changed = edits.changed()
    if outside := sorted(index for index in edits.drop | changed if not 0 <= index < count):
        raise ValueError(f"edits: there is no message {outside[0]}, only 0 to {count - 1}")
    if both := sorted(edits.drop & changed):
        raise ValueError(f"edits: message {both[0]} is dropped and changed at once")
    if twice := sorted(edits.contents.keys() & {index for index, _ in edits.texts}):
        raise ValueError(f"edits: message {twice[0]} gets a whole content and the text of a part at once")
    for index, part in edits.texts:
        parts = messages[index].parts
        if not (0 <= part < len(parts) and isinstance(parts[part], Text)):
            raise ValueError(f"edits.texts: part {part} of message {index} is no text")
    for note in edits.notes:
        _check_note(chat, note)
    if "" in (*edits.contents.values(), *edits.texts.values(), *(note.text for note in edits.notes)):
        raise ValueError("edits: a text is empty; drop the message instead")
    if len(edits.drop) == count and not edits.notes:
        raise ValueError("edits.drop: no message would be left")


def _check_note(chat: Chat, note: Note) -> None:
    count = len(chat.messages)
    if not 0 <= note.before <= count:
        raise ValueError(f"edits.notes: there is no place {note.before}, only 0 to {count}")
    if note.merge:
        message = chat.messages[note.before]
        if message.role != "user" or message.shape in (Shape.MISSING, Shape.OTHER):
            raise ValueError(f"edits.notes: message {note.before} is not a user's with a content to merge into")
