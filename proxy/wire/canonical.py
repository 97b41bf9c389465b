"""What makes two messages the same one, however a client writes it down. (pure)

Clients rebuild their history for every request, from their own objects, so a message is compared by what the model
reads in it:

- `role`, `name`, `tool_call_id` and `refusal`, as strings;
- `content`: a string is a list of one text part; of a text part only its text counts; null, absent, "", [] and
  empty text parts are nothing. Other parts count whole;
- `tool_calls`: id, name and arguments of each, in order; `function_call` likewise; of an assistant's `audio` its id;
- `arguments`: the JSON value they spell (a JSON object sent instead of a string is that value; nothing at all is
  {}), else the text itself.

Everywhere key order, spacing, escapes and the spelling of numbers (1, 1.0, 1e0) do not count, and null is absent,
except inside arguments. Not identity, because the same client sends it in one request and not in the next, or sends
it changed:

- `cache_control`, on messages and parts: clients move it along to the newest messages;
- thoughts of an assistant (`reasoning_content`, `reasoning`, `reasoning_details`, parts of type thinking, redacted_
  thinking or reasoning): several providers want them back within a tool loop and refuse them after it;
- ids and times that clients keep on messages (`id`, `index`, `created_at`, `timestamp`, `metadata`);
- every other field of an assistant message (`annotations`, `parsed`, `audio` data, thought signatures, a call's
  `index`): they come from the provider, and some clients echo them while others drop them.

An unknown field of any other message counts: providers have put pictures there. A difference that is missed replays
another conversation's cut of the same length, a difference too many costs one cut anew; neither changes a text.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from json.encoder import encode_basestring as _quoted
from typing import Any

from proxy.wire import rawjson

DIGEST_BYTES = 16

_KNOWN = frozenset({"role", "name", "content", "refusal", "tool_calls", "function_call", "tool_call_id"})
_NOISE = frozenset(
    {"annotations", "cache_control", "created_at", "createdAt", "id", "index", "metadata", "timestamp"}
    | {"reasoning", "reasoning_content", "reasoning_details"}
)
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_THOUGHT_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning"})


def digest(message: Mapping[str, Any]) -> bytes:
    """16 bytes of BLAKE2b over the canonical form of a message."""
    return blake2b(canonical(message), digest_size=DIGEST_BYTES, person=b"message").digest()


def canonical(message: Mapping[str, Any]) -> bytes:
    """The canonical form of a message, given as a decoded JSON object; total over those."""
    role, said = message.get("role"), message.get("content")
    if len(message) == 2 and said and isinstance(said, str) and isinstance(role, str):
        # Most messages are so; this is what the rest would make of them.
        return _bytes(f'{{"content":[{_quoted(said)}],"role":{_quoted(role)}}}')
    assistant = message.get("role") == "assistant"
    form = {name: _plain(message.get(name)) for name in ("role", "name", "tool_call_id")}
    parts, refusals = _content(message.get("content"), thoughts=not assistant)
    form["content"] = parts
    form["refusal"] = refusals + ([_plain(message["refusal"])] if message.get("refusal") else [])
    form["tool_calls"] = _calls(message.get("tool_calls"))
    form["function_call"] = _call(message.get("function_call"))
    if not assistant:
        form["more"] = {k: _plain(v) for k, v in message.items() if k not in _KNOWN and k not in _NOISE}
    elif isinstance(audio := message.get("audio"), Mapping):
        form["audio"] = _plain(audio.get("id"))
    return _encoded(_without_nothing(form))


def _content(content: Any, *, thoughts: bool) -> tuple[Any, list[Any]]:
    """The parts of a content, texts as bare strings, and the refusals among them."""
    if content is None:
        return None, []
    if isinstance(content, str):
        return [content] if content else None, []
    if not isinstance(content, list):
        return {"value": _plain(content)}, []
    parts: list[Any] = []
    refusals: list[Any] = []
    for part in content:
        stated = part.get("type") if isinstance(part, dict) else None
        kind = stated if isinstance(stated, str) else None
        if kind in _TEXT_TYPES and isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            refusals.append(part["refusal"])
        elif isinstance(part, dict):
            if thoughts or kind not in _THOUGHT_TYPES:
                parts.append(_plain({key: value for key, value in part.items() if key != "cache_control"}))
        else:
            parts.append(_plain(part))
    return [part for part in parts if part != ""], refusals


def _calls(calls: Any) -> Any:
    return [_call(call) for call in calls] if isinstance(calls, list) else _plain(calls)


def _call(call: Any) -> Any:
    """A tool call or a legacy function call: id, name, arguments; whole where it is of another make."""
    if not isinstance(call, dict):
        return _plain(call)
    function = call.get("function", call if "name" in call else None)
    if isinstance(function, dict):
        form = {"name": _plain(function.get("name")), "arguments": _arguments(function.get("arguments"))}
    elif isinstance(custom := call.get("custom"), dict):
        form = {"custom": _plain(custom)}
    else:
        form = {"value": _plain({key: value for key, value in call.items() if key not in _NOISE})}
    return _without_nothing({"id": _plain(call.get("id")), **form})


def _arguments(arguments: Any) -> dict[str, Any]:
    if arguments is None:
        return {"json": {}}
    if not isinstance(arguments, str):
        return {"json": _plain(arguments, nulls=True)}
    if not arguments.strip():
        return {"json": {}}
    try:
        return {"json": _plain(rawjson.read(arguments.encode("utf-8", "surrogatepass")), nulls=True)}
    except rawjson.RawJsonError:
        return {"text": arguments}


def _plain(value: Any, *, nulls: bool = False) -> Any:
    """A JSON value with one spelling for each number and, unless `nulls`, without members that are null."""
    if isinstance(value, dict):
        return {key: _plain(item, nulls=nulls) for key, item in value.items() if nulls or item is not None}
    if isinstance(value, list):
        return [_plain(item, nulls=nulls) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _without_nothing(form: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in form.items() if value is not None and value not in ([], {})}


def _encoded(form: Any) -> bytes:
    return _bytes(json.dumps(form, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of an emoji that was cut in two: what is read out of bytes has U+FFFD for it
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
