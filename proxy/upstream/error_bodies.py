"""What an upstream's error says of itself: its codes, its messages, its figures, however they are wrapped.

OpenAI's shape, a bare one, one in a list, one in a string inside another (an aggregator's `metadata.raw`), one in an
event stream, plain text or HTML. Only the first `LOOKED_AT` bytes are read, and of those only fields that hold what
the upstream says: what it quotes of the request or of the model's answer is nobody's error message.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.http import codings
from proxy.wire import rawjson

LOOKED_AT = 65_536  # bytes
TEXT = 4_096  # characters of one message
_NODES = 256  # values that are looked at
_MOST = 8  # messages, and codes, that are kept
_NESTED = 4  # texts that are read as JSON themselves

_CODES = {"code", "type", "status", "reason", "error_code", "error_type", "errortype", "errorcode", "__type"}
_TEXTS = {"message", "msg", "error", "detail", "details", "description", "error_message", "error_msg", "reason", "raw"}
_WITHIN = _TEXTS | {"errors", "metadata", "body", "response", "innererror", "inner_error", "cause", "data"}
_FIGURES = {"n_ctx", "n_prompt_tokens"}
_TOLD = re.compile(r'"(?:code|type|status)"\s{0,8}:\s{0,8}"([^"\\]{1,80})"')
_ESCAPE = re.compile(r"\\+(?:[nrt]|u00(?:20|a0))?")


@dataclass(frozen=True, slots=True)
class Said:
    """`codes` are lower case; `params` are the fields it blames; `figures` are numbers by name (n_ctx)."""

    codes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    figures: tuple[tuple[str, int], ...] = ()


def read(body: bytes, content_encoding: str = "") -> Said:
    """What an error body says; total, whatever the bytes are."""
    data = _decoded(body, content_encoding).removeprefix(b"\xef\xbb\xbf").strip()
    if data.startswith((b"data:", b"event:", b":")):
        events = [line[5:] for line in data.splitlines() if line.startswith(b"data:")]
        return of([value for event in events[:_MOST] if (value := _value(event)) is not None])
    value = _value(data)
    if value is not None:
        return of(value)
    text = data[: 4 * TEXT].decode("utf-8", "replace")[:TEXT]
    codes = (code.lower() for code in _TOLD.findall(text))
    return Said(codes=tuple(codes)[:_MOST], texts=(_ESCAPE.sub(" ", text),) if text else ())


def of(value: Any) -> Said:
    """What an error says that was read already: an object, a list, a text."""
    codes: list[str] = []
    texts: list[str] = []
    params: list[str] = []
    figures: dict[str, int] = {}
    nested = 0
    queue: deque[Any] = deque([value])
    for _ in range(_NODES):
        if not queue:
            break
        node = queue.popleft()
        if isinstance(node, str):
            inner = _inner(node) if nested < _NESTED else None
            if inner is not None:
                nested += 1
                queue.append(inner)
            elif node.strip():
                texts.append(node[:TEXT])
        elif isinstance(node, list):
            queue.extend(node[:_MOST])
        elif isinstance(node, dict):
            for key, item in _first(node.items()):
                name = key.lower() if isinstance(key, str) else ""
                if name in _CODES and isinstance(item, str):
                    codes.append(item[:TEXT].lower())
                if name == "param" and isinstance(item, str):
                    params.append(item[:TEXT])
                if name in _FIGURES and type(item) is int:
                    figures.setdefault(name, item)
                if name in (_TEXTS if isinstance(item, str) else _WITHIN):
                    queue.append(item)
    return Said(tuple(codes[:_MOST]), tuple(texts[:_MOST]), tuple(params[:_MOST]), tuple(figures.items()))


def _first(items: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    return (item for item, _ in zip(items, range(_NODES), strict=False))


def _value(data: bytes) -> Any:
    """The JSON value, None if it is null or none."""
    try:
        return rawjson.read(data)
    except rawjson.RawJsonError:
        return None


def _inner(text: str) -> Any:
    """The object or list that a text is the JSON of, else None."""
    start = text[:64].lstrip()
    if not start.startswith(("{", "[")) or len(text) > LOOKED_AT:
        return None
    found = _value(text.encode("utf-8", "surrogatepass"))
    return found if isinstance(found, dict | list) else None


def _decoded(body: bytes, content_encoding: str) -> bytes:
    """The first bytes of the body, uncompressed; empty if nobody can read them."""
    if not codings.names(content_encoding):
        return body[:LOOKED_AT]
    decoder = codings.decoder(content_encoding)
    if decoder is None:
        return b""
    found = bytearray()
    try:
        for piece in decoder.feed(body[:LOOKED_AT]):
            found += piece
            if len(found) >= LOOKED_AT:
                break
    except codings.CorruptError:
        pass
    return bytes(found[:LOOKED_AT])
