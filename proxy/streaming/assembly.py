"""Puts a chat completion together: from the chunks of a stream, or from a whole reply.

Fields are read leniently: a value of an unexpected type is as good as absent, since providers differ.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_NO_COUNT = 2**53  # an upstream that counts so far does not count, and stores take no integers of any size


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the upstream counted them; `cached_tokens` is what its cache had of the prompt, None if unsaid."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


class _Delta(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    index: Any = 0
    finish_reason: Any = None
    delta: _Delta | None = None
    message: Any = None
    usage: Any = None  # where Moonshot puts it


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class Assembly:
    """What is known of a completion so far. At most `limit` bytes of text are kept of it."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._call_ids: dict[str, int] = {}
        self._function: dict[str, Any] | None = None
        self._function_arguments: list[str] = []
        self._whole: dict[str, Any] | None = None
        self._spoke = False
        self.finish_reasons: dict[int, str] = {}
        self.usage: Usage | None = None
        self.error: Any = None
        self.done = False
        self.truncated = False

    def take_event(self, event: bytes, data: bytes) -> None:
        """One event of a stream."""
        if data == b"[DONE]":
            self.done = True
            return
        chunk = _decode(data)
        if chunk is not None:
            self._take(chunk)
        if event == b"error" and self.error is None:
            self.error = _value(data)

    def take_reply(self, data: bytes) -> None:
        """A whole JSON reply, as far as it came."""
        chunk = _decode(data)
        if chunk is None:
            self._take_foreign(_value(data))
            return
        self.done = True
        self._take(chunk)
        if chunk.object == "error" and self.error is None:
            self.error = _value(data)

    def take_stray(self, data: bytes) -> None:
        """Bytes that stood in an event stream without its framing: an error, if they are JSON."""
        self._take_foreign(_value(data), done=False)

    def take_tail(self, data: bytes) -> None:
        """The end of a reply that was too large to keep: its usage is there."""
        for match in reversed(list(_USAGE.finditer(data))):
            text = data[match.end() - 1 :].decode("utf-8", "replace")
            try:
                self._take_usage(json.JSONDecoder().raw_decode(text)[0])
            except (ValueError, RecursionError):
                continue
            return

    def message(self) -> dict[str, Any] | None:
        """Choice 0's message; None if it said nothing at all."""
        if self._whole is not None or not self._spoke:
            return self._whole
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for name, parts in self._texts.items():
            message[name] = _joined(parts)
        if self._calls:
            message["tool_calls"] = [self._call(index) for index in sorted(self._calls)]
        if self._function is not None:
            message["function_call"] = {**self._function, "arguments": _joined(self._function_arguments)}
        return message

    def _take_foreign(self, value: Any, *, done: bool = True) -> None:
        """A JSON value that is not a completion: Gemini wraps its errors in a list."""
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            self.done = self.done or done
            if self.error is None and value.get("error"):
                self.error = value["error"]

    def _take(self, chunk: _Chunk) -> None:
        if chunk.error and self.error is None:
            self.error = chunk.error
        if chunk.usage is not None:
            self._take_usage(chunk.usage)
        for choice in chunk.choices or ():
            index = choice.index if isinstance(choice.index, int) else 0
            if isinstance(choice.finish_reason, str) and choice.finish_reason:
                self.finish_reasons[index] = choice.finish_reason
            if choice.usage is not None and self.usage is None:
                self._take_usage(choice.usage)
            if index != 0:
                continue
            if isinstance(choice.message, dict):
                self._whole = choice.message
            if choice.delta is not None:
                self._take_delta(choice.delta)

    def _take_delta(self, delta: _Delta) -> None:
        self._spoke = True
        self._take_text("content", delta.content)
        if delta.refusal is not None:
            self._take_text("refusal", delta.refusal)
        if delta.reasoning_content is not None:
            self._take_text("reasoning_content", delta.reasoning_content)
        if delta.reasoning is not None:
            self._take_text("reasoning", delta.reasoning)
        if isinstance(delta.tool_calls, list):
            for call in delta.tool_calls:
                if isinstance(call, dict):
                    self._take_call(call)
        if isinstance(delta.function_call, dict):
            self._function = self._function or {}
            _merge(self._function, delta.function_call)
            arguments = delta.function_call.get("arguments")
            if isinstance(arguments, str) and self._has_room(arguments):
                self._function_arguments.append(arguments)

    def _take_text(self, name: str, value: Any) -> None:
        if isinstance(value, str) and self._has_room(value):
            parts = self._texts.get(name)
            if parts is None:
                self._texts[name] = [value]
            else:
                parts.append(value)

    def _take_call(self, part: dict[str, Any]) -> None:
        index = self._call_index(part)
        call = self._calls.setdefault(index, {})
        for kind in ("function", "custom"):
            piece = part.get(kind)
            if isinstance(piece, dict):
                _merge(call.setdefault(kind, {}), piece)
                text = piece.get("arguments" if kind == "function" else "input")
                if isinstance(text, str) and self._has_room(text):
                    self._arguments.setdefault(index, []).append(text)
        for key, value in part.items():
            if key not in ("index", "function", "custom") and value is not None and value != "":
                call[key] = value

    def _call_index(self, part: dict[str, Any]) -> int:
        """The place of a piece of a call; some servers leave `index` out and name the id only, or nothing."""
        index = part.get("index")
        call_id = part.get("id")
        if not isinstance(index, int):
            last = max(self._calls, default=-1)
            known = isinstance(call_id, str) and bool(call_id)
            index = self._call_ids.get(str(call_id), last + 1) if known else max(last, 0)
        if isinstance(call_id, str) and call_id:
            self._call_ids[call_id] = index
        return index

    def _call(self, index: int) -> dict[str, Any]:
        call = dict(self._calls[index])
        text = _joined(self._arguments.get(index, []))
        if "custom" in call:
            call["custom"] = {**call["custom"], "input": text}
        elif "function" in call:
            call["function"] = {**call["function"], "arguments": text}
        return call

    def _has_room(self, text: str) -> bool:
        self._room -= len(text)
        if self._room < 0:
            self.truncated = True
        return self._room >= 0

    def _take_usage(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if prompt is None:
            return
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        if cached is None:
            cached = _count(usage.get("prompt_cache_hit_tokens"))  # DeepSeek
        self.usage = Usage(prompt, completion or 0, cached)


def _merge(into: dict[str, Any], piece: dict[str, Any]) -> None:
    """The fields of a call's piece, its growing text apart; the first name stays, as some servers repeat it."""
    for key, value in piece.items():
        if key not in ("arguments", "input") and value and not (key == "name" and into.get("name")):
            into[key] = value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NO_COUNT else None


def _decode(data: bytes) -> _Chunk | None:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return msgspec.convert(_value(data), _Chunk)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _value(data: bytes) -> Any:
    """JSON of any shape, lone surrogates and broken UTF-8 included; None if it is none."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _joined(parts: list[str]) -> str:
    """The parts as one string; halves of a surrogate pair, which two chunks may carry, come together."""
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
