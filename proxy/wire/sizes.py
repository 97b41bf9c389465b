"""How much memory a message that was read takes, so that what is bounded in bytes is bounded. (pure)

Measured, and on the high side. A string takes one to four bytes a character, by the widest of its characters, and one
that is not ASCII keeps its UTF-8 as well once it was encoded.
"""

from collections.abc import Iterator

from proxy.wire.chat import Image, Message, Text

_AROUND = 100  # bytes of a message's own, beside what any entry of a memory takes
_PART = 64  # of the object around a text, and its place


def of_message(message: Message) -> int:
    """Bytes of a message and its texts."""
    size, plain = _AROUND, True
    for text in _texts(message):
        size += _PART + text.__sizeof__()
        plain = plain and text.isascii()
    return size if plain else size + message.size


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        yield part.text if isinstance(part, Text) else part.url if isinstance(part, Image) else ""
    for call in message.calls:
        yield from (call.id, call.name, call.arguments)
    yield from message.extras
