"""Chat-completions bytes as values: which messages stand where in a body, and which settings it carries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from proxy.errors import TrimtabError
from proxy.wire import rawjson, sizes
from proxy.wire.chat import Message
from proxy.wire.grouping import group
from proxy.wire.history import History
from proxy.wire.memo import Memo
from proxy.wire.messages import ESCAPED_LETTER, digest, read_message
from proxy.wire.rawjson import Span
from proxy.wire.request import Carry, Chat, Shared
from proxy.wire.settings import model_name, output_limits, read_settings

__all__ = ["Chat", "History", "NotChat", "Peek", "Reason", "parse", "peek", "peek_model"]

_OPENING = b'{"messages":['  # before the rest of a list of messages, to make a whole of it
_MEMO_FROM = 512  # bytes from which a decoded top-level value is worth remembering
_DECODED = 8  # how much larger schemas are as dicts than as JSON
# Parts whose tokens their bytes do not bound. Within a text the closing quote would be escaped, so these are values.
_MEDIA = re.compile(rb'"(?:image(?:_url)?|(?:audio|video)(?:_url)?|input_(?:image|audio|video|file)|file|document)"')


class Reason(StrEnum):
    """Why a body is passed on as it came instead of being read as a chat request."""

    NOT_JSON = "not_json"
    TOO_DEEP = "too_deep"
    NO_MESSAGES = "no_messages"  # missing, no list, or empty
    AMBIGUOUS_JSON = "ambiguous_json"  # a key occurs twice at the top or in a message; parsers disagree which counts


class NotChat(TrimtabError):  # noqa: N818 - a finding about a body, which passes all the same
    """A body that is not a chat request, or not one that can be read without doubt."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Peek:
    """What routing and «surely fits» need of a request, read without looking into its messages.

    `media`: the body may hold images, audio or files, whose tokens the size of the body does not bound. `fresh` are
    the bytes that no request read before has in common with it. `fields` and `shared` spare `parse` the second look.
    """

    model: str | None
    stream: bool
    output_limits: tuple[int, ...]
    media: bool
    fresh: int = field(default=0, compare=False)
    fields: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)
    shared: Shared | None = field(default=None, compare=False, repr=False)
    media_at: int | None = field(default=None, compare=False, repr=False)


def parse(body: bytes, memo: Memo[Any] | None = None, history: History | None = None, seen: Peek | None = None) -> Chat:
    """The chat request in `body`; what `memo` holds, under the digest of its bytes, is not decoded again.

    What it shares with a request in `history` is not even looked at, and it goes there itself. `seen` is what `peek`
    said of this very body, with the same history.

    Raises NotChat.
    """
    memo = Memo(max_bytes=0) if memo is None else memo
    if seen is None and history is not None:
        seen = peek(body, history)
    shared = seen.shared if seen is not None else None
    try:
        fields = seen.fields if seen is not None and seen.fields else rawjson.members(body)
        array = fields.get("messages")
        if array is None:
            raise rawjson.WrongTypeError("messages is missing")
        spans = tuple(_spans(body, array, shared))
        if not spans:
            raise rawjson.WrongTypeError("messages is empty")
        known = shared.messages if shared is not None else ()
        messages = (*known, *_messages(body, spans[len(known) :], memo))

        def read(name: str) -> Any:
            span = fields.get(name)
            return None if span is None else _value(body[span.start : span.end], memo)

        settings = read_settings(read)
    except rawjson.RawJsonError as error:
        raise NotChat(_reason(error), str(error)) from error
    groups = group(messages, shared.groups if shared is not None else (), len(known))
    carry = Carry(shared.carry if shared is not None else None, len(known))
    chat = Chat(body, settings, messages, spans, array, MappingProxyType(dict(fields)), groups, carry)
    if history is not None and seen is not None:
        history.put(chat, seen.media_at)
    return chat


def peek(body: bytes, history: History | None = None) -> Peek:
    """What `body` says of its model, its output limits and its media; `history` spares it what was read before.

    Raises NotChat, but never for what stands inside `messages`.
    """
    shared = history.find(body) if history is not None else None
    found = _resumed(body, shared) if shared is not None else None
    try:
        if found is None:
            found, shared = rawjson.members(body), None
        if "messages" not in found or not body.startswith(b"[", found["messages"].start):
            raise rawjson.WrongTypeError("messages is missing or no list")

        def read(name: str) -> Any:
            return rawjson.read(body[slice(*found[name])]) if name in found else None

        media = _media_at(body, shared)
        return Peek(
            model=model_name(read),
            stream=read("stream") is True,
            output_limits=output_limits(read, found),
            media=media is not None,
            fresh=len(body) - (shared.end if shared is not None else 0),
            fields=found,
            shared=shared,
            media_at=media,
        )
    except rawjson.RawJsonError as error:
        raise NotChat(_reason(error), str(error)) from error


def peek_model(body: bytes) -> str | None:
    """The top-level `model` of any JSON body, None where there is none or the body cannot be read."""
    try:
        found = rawjson.values(body)
        return model_name(lambda name: rawjson.read(bytes(found[name])) if name in found else None)
    except rawjson.RawJsonError:
        return None


def _media_at(body: bytes, shared: Shared | None) -> int | None:
    """Where the first media may begin. What is shared ends with a message, and so in the middle of none."""
    if shared is not None and shared.media is not None:
        return shared.media
    start = shared.end if shared is not None else 0
    found = (_MEDIA.search(body, start), ESCAPED_LETTER.search(body, start))
    return min((match.start() for match in found if match is not None), default=None)


def _resumed(body: bytes, shared: Shared) -> dict[str, Span] | None:
    """What `rawjson.members` says of `body`, from what follows on the shared part; None where that takes all of it."""
    at = after = rawjson.skip(body, shared.end)
    if body.startswith(b",", at):
        after = at + 1
        if body.startswith(b"]", rawjson.skip(body, after)):
            return None
    elif not body.startswith(b"]", at):
        return None
    try:
        rest = rawjson.members(_OPENING + body[after:])
    except rawjson.RawJsonError:
        return None
    if not rest.keys().isdisjoint(shared.fields):
        return None
    offset = after - len(_OPENING)
    fields = dict(shared.fields)
    for name, (start, end) in rest.items():
        fields[name] = Span(start + offset, end + offset)
    fields["messages"] = Span(shared.start, fields["messages"].end)
    return fields


def _spans(body: bytes, array: Span, shared: Shared | None) -> Iterable[Span]:
    if shared is None:
        return rawjson.elements(body[array.start : array.end], offset=array.start)
    at = rawjson.skip(body, shared.end)
    if body.startswith(b"]", at):
        return shared.spans
    return (*shared.spans, *rawjson.elements(b"[" + body[at + 1 : array.end], offset=at))


def _messages(body: bytes, spans: Iterable[Span], memo: Memo[Any]) -> Iterator[Message]:
    for start, end in spans:
        raw = body[start:end]
        key = digest(raw)
        message = memo.get(key)
        if message is None:
            message = read_message(raw, key)
            memo.put(key, message, sizes.of_message(message))
        yield message


def _value(raw: bytes, memo: Memo[Any]) -> Any:
    if len(raw) < _MEMO_FROM:
        return rawjson.read(raw)
    key = blake2b(raw, digest_size=16, person=b"value").digest()
    known = memo.get(key)
    if known is None:
        known = rawjson.read(raw)
        memo.put(key, known, _DECODED * len(raw))
    return known


def _reason(error: rawjson.RawJsonError) -> Reason:
    match error:
        case rawjson.TooDeepError():
            return Reason.TOO_DEEP
        case rawjson.DuplicateKeyError():
            return Reason.AMBIGUOUS_JSON
        case rawjson.WrongTypeError():
            return Reason.NO_MESSAGES
        case _:
            return Reason.NOT_JSON
