"""Chat-completions bytes as values: which messages stand where in a body, and which settings it carries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from proxy.errors import TrimtabError
from proxy.wire import rawjson
from proxy.wire.chat import Message, Settings
from proxy.wire.memo import Memo
from proxy.wire.messages import ESCAPED_LETTER, digest, read_message
from proxy.wire.rawjson import Span
from proxy.wire.settings import model_name, output_limits, read_settings

_MEMO_FROM = 512  # bytes from which a decoded top-level value is worth remembering
_DECODED = 8  # how much larger schemas are as dicts than as JSON
# Parts whose tokens their bytes do not bound. Within a text the closing quote would be escaped, so these are values.
_MEDIA = re.compile(rb'"(?:image(?:_url)?|(?:audio|video)(?:_url)?|input_(?:image|audio|video|file)|file|document)"')


class Reason(StrEnum):
    """Why a body is passed on as it came instead of being read as a chat request."""

    NOT_JSON = "not_json"
    TOO_DEEP = "too_deep"
    NO_MESSAGES = "no_messages"  # missing, no list, empty, or with a member that is no object with a string role
    AMBIGUOUS_JSON = "ambiguous_json"  # a key occurs twice at the top or in a message; parsers disagree which counts


class NotChat(TrimtabError):  # noqa: N818 - a finding about a body, which passes all the same
    """A body that is not a chat request, or not one that can be read without doubt."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request: the client's own bytes, what they say, and where each message stands in them.

    `array` is where the list of messages stands, brackets included; `fields` is where the value of each top-level
    field stands, in the client's order.
    """

    body: bytes
    settings: Settings
    messages: tuple[Message, ...]
    spans: tuple[Span, ...]
    array: Span
    fields: Mapping[str, Span]

    def raw(self, index: int) -> bytes:
        """The client's own bytes of message `index`."""
        start, end = self.spans[index]
        return self.body[start:end]

    def field(self, name: str) -> bytes | None:
        """The client's own bytes of the top-level field `name`, None if there is none."""
        span = self.fields.get(name)
        return self.body[span.start : span.end] if span else None


@dataclass(frozen=True, slots=True)
class Peek:
    """What routing and «surely fits» need of a request, read without looking into its messages.

    `media`: the body may hold images, audio or files, whose tokens the size of the body does not bound.
    """

    model: str | None
    stream: bool
    output_limits: tuple[int, ...]
    media: bool


def parse(body: bytes, memo: Memo[Any] | None = None) -> Chat:
    """The chat request in `body`; what `memo` holds, under the digest of its bytes, is not decoded again.

    Raises NotChat.
    """
    memo = Memo(max_bytes=0) if memo is None else memo
    try:
        fields = rawjson.members(body)
        array = fields.get("messages")
        if array is None:
            raise rawjson.WrongTypeError("messages is missing")
        spans = tuple(rawjson.elements(body[array.start : array.end], offset=array.start))
        if not spans:
            raise rawjson.WrongTypeError("messages is empty")
        messages = tuple(_messages(body, spans, memo))

        def read(name: str) -> Any:
            span = fields.get(name)
            return None if span is None else _value(body[span.start : span.end], memo)

        settings = read_settings(read)
    except rawjson.RawJsonError as error:
        raise NotChat(_reason(error), str(error)) from error
    return Chat(body, settings, messages, spans, array, MappingProxyType(fields))


def peek(body: bytes) -> Peek:
    """What `body` says of its model, its output limits and its media.

    Raises NotChat, but never for what stands inside `messages`.
    """
    try:
        found = rawjson.members(body)
        if "messages" not in found or not body.startswith(b"[", found["messages"].start):
            raise rawjson.WrongTypeError("messages is missing or no list")

        def read(name: str) -> Any:
            return rawjson.read(body[slice(*found[name])]) if name in found else None

        return Peek(model_name(read), read("stream") is True, output_limits(read), _may_hold_media(body))
    except rawjson.RawJsonError as error:
        raise NotChat(_reason(error), str(error)) from error


def peek_model(body: bytes) -> str | None:
    """The top-level `model` of any JSON body, None where there is none or the body cannot be read."""
    try:
        found = rawjson.values(body)
        return model_name(lambda name: rawjson.read(bytes(found[name])) if name in found else None)
    except rawjson.RawJsonError:
        return None


def _may_hold_media(body: bytes) -> bool:
    return _MEDIA.search(body) is not None or ESCAPED_LETTER.search(body) is not None


def _messages(body: bytes, spans: Iterable[Span], memo: Memo[Any]) -> Iterator[Message]:
    for start, end in spans:
        raw = body[start:end]
        key = digest(raw)
        message = memo.get(key)
        if message is None:
            message = read_message(raw, key)
            memo.put(key, message, len(raw))
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
