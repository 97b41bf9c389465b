"""Where the values of a JSON text stand in its bytes, and what they mean, without giving up the bytes themselves.

`msgspec` reads nested values as raw slices, whose order and lengths are enough to walk the text and recover every
position. What it refuses although other parsers accept it is read from a stand-in of the same length: an escaped
lone surrogate, half of an emoji cut in two, counts as U+FFFD. Bytes that are no UTF-8 count as U+FFFD too, in a key as
a question mark, and numbers out of range as float or infinity; all of that for reading only.
"""

import json
import re
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

MAX_DEPTH = 200
"""How deep a value may nest to be read: far beyond any request, far below the recursion limits of parsers."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder(msgspec.Raw)
_key = msgspec.json.Decoder(str)

_LAST_SPACE = ord(" ")  # outside strings, JSON has nothing below it but white space
_SPACE = re.compile(rb"[ \t\n\r]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# An escaped surrogate; a high half takes the low half that follows. It begins with a literal, for the search's speed.
_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|[c-fC-F][0-9a-fA-F]{2})")
_STAND_IN = rb"\ufffd"
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = np.zeros(256, dtype=np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_SAFE_DIGITS = 400  # int() is quadratic and refuses 4,300 digits; float() takes any number of them


class RawJsonError(ValueError):
    """A text that cannot be taken apart."""


class MalformedError(RawJsonError):
    """The bytes are not JSON."""


class WrongTypeError(RawJsonError):
    """JSON, but of another type than was asked for."""


class TooDeepError(RawJsonError):
    """Nested deeper than can be read."""


class DuplicateKeyError(RawJsonError):
    """An object that has a key twice, however escaped: parsers disagree which of the two counts."""


class Span(NamedTuple):
    """Where a value stands: `text[start:end]`, in bytes."""

    start: int
    end: int


_span = partial(tuple.__new__, Span)  # thrice as fast as Span(), which a thousand messages notice


def values(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of the object `raw` as undecoded values, the last one where a key repeats.

    Raises MalformedError, WrongTypeError or TooDeepError.
    """
    found: dict[str, msgspec.Raw]
    found, _ = _tolerant(_object, raw)
    return found


def members(raw: bytes) -> dict[str, Span]:
    """Where each member's value of the object `raw` stands, in order.

    Raises MalformedError, WrongTypeError, TooDeepError or DuplicateKeyError.
    """
    found: dict[str, msgspec.Raw]
    found, text = _tolerant(_object, raw)
    spans: dict[str, Span] = {}
    at = skip(text, skip(text, 0) + 1)
    while text[at] != ord("}"):
        match = _STRING.match(text, at)
        key = _key.decode(match[0]) if match else None
        # Of a repeated key `found` has only the last value, so the walk meets the key again or loses its way.
        if match is None or key is None or key not in found or key in spans:
            raise DuplicateKeyError(_twice(key))
        start = skip(text, skip(text, match.end()) + 1)
        end = start + len(found[key])
        if text[start:end] != bytes(found[key]):
            raise DuplicateKeyError(_twice(key))
        spans[key] = Span(start, end)
        at = skip(text, end)
        if text[at] == ord(","):
            at = skip(text, at + 1)
    return spans


def elements(raw: bytes, offset: int = 0) -> list[Span]:
    """Where each element of the array `raw` stands, counted from `offset`.

    Raises MalformedError, WrongTypeError or TooDeepError.
    """
    found: list[msgspec.Raw]
    found, text = _tolerant(_array, raw)
    spans = []
    at = skip(text, 0) + 1
    for size in map(len, found):
        if text[at] <= _LAST_SPACE:
            at = skip(text, at)
        spans.append(_span((at + offset, at + size + offset)))
        at += size
        at = (at if text[at] > _LAST_SPACE else skip(text, at)) + 1
    return spans


def read(raw: bytes) -> Any:
    """The value of the JSON text `raw`: total over what `values` and `elements` hand out.

    Raises MalformedError, or TooDeepError beyond MAX_DEPTH.
    """
    if deeper_than(MAX_DEPTH, raw):
        raise TooDeepError(f"nested more than {MAX_DEPTH} deep")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _read_leniently(raw)
    except RecursionError as error:
        raise TooDeepError(str(error)) from error


def write(text: str) -> bytes:
    """`text` as a JSON string in UTF-8; a lone surrogate becomes U+FFFD, since strict parsers refuse it."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def deeper_than(limit: int, raw: bytes) -> bool:
    """Whether arrays and objects of the JSON text `raw` nest more than `limit` deep."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS)
    steps = _STEP[np.frombuffer(brackets, dtype=np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > limit)


def _twice(key: str | None) -> str:
    return "a key occurs more than once" if key is None else f"the key {key!r} occurs more than once"


def _tolerant(decoder: "msgspec.json.Decoder[Any]", raw: bytes) -> tuple[Any, bytes]:
    """What `decoder` makes of `raw`, or else of its stand-in, and the text that was decoded."""
    try:
        return _decoded(decoder, raw), raw
    except MalformedError:
        text = _all_utf8(_without_lone_surrogates(raw))
        if text == raw:
            raise
        return _decoded(decoder, text), text


def _decoded(decoder: "msgspec.json.Decoder[Any]", text: bytes) -> Any:
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            _any.decode(text)  # the type is judged before the rest is read
            raise WrongTypeError(str(error)) from error
    except RecursionError as error:
        raise TooDeepError(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(str(error)) from error


def _without_lone_surrogates(raw: bytes) -> bytes:
    return _SURROGATE.sub(_replace_lone, raw)


def _all_utf8(raw: bytes) -> bytes:
    """`raw` with a question mark for each byte that is no UTF-8: as long as it was."""
    return raw.decode("utf-8", "surrogateescape").encode("utf-8", "replace")


def _replace_lone(match: re.Match[bytes]) -> bytes:
    text, start, low = match.string, match.start(), match[1]
    run = start
    while run and text[run - 1] == ord("\\"):
        run -= 1
    escaped = (start - run) % 2 == 0  # after an odd number of backslashes, this one is itself escaped
    if escaped:
        return match[0] if low else _STAND_IN
    return match[0][: -len(low)] + _STAND_IN if low else match[0]


def _read_leniently(raw: bytes) -> Any:
    text = _without_lone_surrogates(raw).decode("utf-8", "replace")
    try:
        return json.loads(text, parse_int=_number)
    except RecursionError as error:
        raise TooDeepError(str(error)) from error
    except ValueError as error:
        raise MalformedError(str(error)) from error


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _SAFE_DIGITS else float(digits)


def skip(text: bytes, at: int) -> int:
    """The first position from `at` on that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at
