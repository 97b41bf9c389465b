"""Reading one message of a chat request out of its bytes; total over JSON values."""

import json
import re
from hashlib import blake2b
from typing import Any

import msgspec

from proxy.wire import canonical, rawjson
from proxy.wire.chat import UNKNOWN, Audio, Call, File, Image, Message, Opaque, Part, Shape, Text

_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_THOUGHTS = ("reasoning_content", "reasoning")
_ABSENT = object()
_JSON_TYPES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_EXTRAS = frozenset({"refusal", *_THOUGHTS, "reasoning_details"})
_ANSWERS = {"tool": "tool_call_id", "function": "name"}
# Inside a JSON string a quote is escaped, so these bytes are keys or whole strings, never part of a text.
_TOOL_KEYS = (b'"tool_calls"', b'"tool_call_id"', b'"function_call"')
ESCAPED_LETTER = re.compile(rb"\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA])")
"""An ASCII letter or underscore written as an escape: no serialiser does, and it can hide a key from a byte search."""


def digest(raw: bytes) -> bytes:
    """The content digest of a message's raw bytes, 16 bytes of BLAKE2b."""
    return blake2b(raw, digest_size=16).digest()


_PLAIN = re.compile(rb'\{\s*+"role"\s*+:\s*+"([a-z]++)"\s*+,\s*+"content"\s*+:\s*+(?=")')
_text = msgspec.json.Decoder(str).decode


def _plain(raw: bytes, key: bytes) -> Message | None:
    """The message where it is a role and a text in this order, as most are; None for any other.

    All behind the role is one JSON string then, so that nothing is nested, and no member stands there twice.
    """
    start = _PLAIN.match(raw)
    if start is None or start[1] in (b"tool", b"function"):
        return None
    try:
        text = _text(raw[start.end() : -1])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not text:
        return None
    role = start[1].decode()
    return Message(
        role=role,
        digest=key,
        canonical=canonical.digest({"role": role, "content": text}),
        size=len(raw),
        shape=Shape.STRING,
        parts=(Text(text),),
    )


def read_message(raw: bytes, key: bytes) -> Message:
    """The message in the JSON text `raw`, whose content digest is `key`.

    One that is no object, or has no string for a role, is of role UNKNOWN.

    Raises DuplicateKeyError if a member occurs twice, since nobody knows which of the two the upstream would read; and
    what `rawjson.read` raises.
    """
    if (plain := _plain(raw, key)) is not None:
        return plain
    value = rawjson.read(raw)
    if not isinstance(value, dict):
        return _no_message(value, len(raw), key)
    stated = value.get("role")
    role = stated if isinstance(stated, str) else UNKNOWN
    if _may_repeat(raw):
        rawjson.members(raw)
    content = value.get("content", _ABSENT)
    legacy = isinstance(value.get("function_call"), dict)
    name = value.get("name")
    return Message(
        role=role,
        digest=key,
        canonical=canonical.digest(value),
        size=len(raw),
        shape=_shape(content),
        parts=_parts(content),
        name=name if isinstance(name, str) else None,
        calls=_calls(value) if legacy or "tool_calls" in value else (),
        legacy_call=legacy,
        answers=_answers(role, value) if role in _ANSWERS else None,
        extras=() if _EXTRAS.isdisjoint(value) else _extras(value),
        marked=b"cache_control" in raw and _marked(value, content),
    )


def _no_message(value: Any, size: int, key: bytes) -> Message:
    return Message(
        role=UNKNOWN,
        digest=key,
        canonical=canonical.digest({"content": value}),
        size=size,
        shape=Shape.OTHER,
        parts=(_opaque(value),),
    )


def _may_repeat(raw: bytes) -> bool:
    """Whether a member may occur twice: never false where one of those that decide anything here does."""
    if raw.count(b'"role"') > 1 or raw.count(b'"content"') > 1:
        return True
    if b"_call" in raw and any(raw.count(name) > 1 for name in _TOOL_KEYS):
        return True
    return b"\\u00" in raw and ESCAPED_LETTER.search(raw) is not None


def _shape(content: Any) -> Shape:
    if isinstance(content, str):
        return Shape.STRING
    if isinstance(content, list):
        return Shape.PARTS
    if content is None:
        return Shape.NULL
    return Shape.MISSING if content is _ABSENT else Shape.OTHER


def _parts(content: Any) -> tuple[Part, ...]:
    """One part for each element of the content, in order; a string is one text."""
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, list):
        return tuple([_part(item) for item in content])
    return () if content is None or content is _ABSENT else (_opaque(content),)


def _part(item: Any) -> Part:
    if not isinstance(item, dict):
        return _opaque(item)
    kind = item.get("type")
    text = item.get("text")
    if isinstance(text, str) and isinstance(kind, str) and kind in _TEXT_TYPES:
        return Text(text)
    return _media(kind, item) or _opaque(item)


def _media(kind: Any, item: dict[str, Any]) -> Part | None:
    match kind:
        case "image_url" | "input_image":
            return _image(item.get("image_url"), item.get("detail"))
        case "image":  # Anthropic's form, which several gateways accept in chat completions
            return _source(item.get("source"))
        case "input_audio":
            audio = item.get("input_audio")
            if isinstance(audio, dict) and isinstance(data := audio.get("data"), str):
                return Audio(size=len(data), format=_string(audio.get("format")))
        case "file" | "input_file":
            file = item.get("file", item)
            if isinstance(file, dict) and ("file_data" in file or "file_id" in file):
                return File(size=len(_string(file.get("file_data"))), filename=_string(file.get("filename")))
    return None


def _image(image: Any, detail: Any) -> Part | None:
    if isinstance(image, dict):
        image, detail = image.get("url"), image.get("detail", detail)
    return Image(url=image, detail=detail if isinstance(detail, str) else None) if isinstance(image, str) else None


def _source(source: Any) -> Part | None:
    if not isinstance(source, dict):
        return None
    data = source.get("data")
    if isinstance(data, str):
        return Image(url=f"data:{_string(source.get('media_type'))};base64,{data}", detail=None)
    return _image(source.get("url"), None)


def _opaque(item: Any) -> Opaque:
    """What nobody here knows, by the type it states or else that of its JSON."""
    kind = item.get("type") if isinstance(item, dict) else None
    return Opaque(type=kind if isinstance(kind, str) else _JSON_TYPES[type(item)], size=len(_encoded(item)))


def _calls(value: dict[str, Any]) -> tuple[Call, ...]:
    """The tool calls in order, then the legacy function call."""
    listed, legacy = value.get("tool_calls"), value.get("function_call")
    calls = [_call(call) for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    if isinstance(legacy, dict):
        calls.append(Call(id="", name=_string(legacy.get("name")), arguments=_written(legacy.get("arguments"))))
    return tuple(calls)


def _call(call: dict[str, Any]) -> Call:
    custom = call.get("custom")
    if isinstance(custom, dict):
        name, arguments = custom.get("name"), custom.get("input")
    else:
        function = call.get("function")
        if not isinstance(function, dict):
            function = {}
        name, arguments = function.get("name"), function.get("arguments")
    identity = _string(call.get("id"))
    return Call(id=identity, name=_string(name), arguments=_written(arguments), custom=isinstance(custom, dict))


def _answers(role: str, value: dict[str, Any]) -> str | None:
    answered = value.get(_ANSWERS[role])
    return answered if isinstance(answered, str) else None


def _extras(value: dict[str, Any]) -> tuple[str, ...]:
    """Refusal and thoughts; gateways send the same thoughts under several names, so each text counts once."""
    texts = [value.get("refusal"), *(value.get(name) for name in _THOUGHTS)]
    if not any(isinstance(text, str) for text in texts[1:]) and isinstance(value.get("reasoning_details"), list):
        details = (detail for detail in value["reasoning_details"] if isinstance(detail, dict))
        texts += [detail.get(name) for detail in details for name in ("text", "summary")]
    return tuple(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def _marked(value: dict[str, Any], content: Any) -> bool:
    parts = content if isinstance(content, list) else ()
    return any(isinstance(item, dict) and item.get("cache_control") is not None for item in (value, *parts))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _written(value: Any) -> str:
    """A call's arguments as text: a string as it is, and JSON where a client sent a value instead."""
    if isinstance(value, str):
        return value
    return "" if value is None else _encoded(value).decode()


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
