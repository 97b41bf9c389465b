"""A chat request as values: what `wire` reads out of the bytes and `tokens` counts."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A string content, or a text part."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An `image_url` part: a data or http URL, and `detail` (low, high, auto) as the client gave it."""

    url: str
    detail: str | None


@dataclass(frozen=True, slots=True)
class Audio:
    """An `input_audio` part of `size` bytes of base64."""

    size: int
    format: str


@dataclass(frozen=True, slots=True)
class File:
    """A `file` part: `size` bytes of base64 (0 for a file id)."""

    size: int
    filename: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part of a type that nobody here knows: its name and its size in bytes of JSON."""

    type: str
    size: int


Part = Text | Image | Audio | File | Opaque

UNKNOWN = "unknown"
"""The role of what is no message that anybody here knows: it states none."""


class Shape(StrEnum):
    """How the client wrote a message's content."""

    STRING = "string"
    PARTS = "parts"
    NULL = "null"
    MISSING = "missing"
    OTHER = "other"  # a number, an object: kept, counted by size, never edited


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of an assistant message; `custom` is for calls of type custom (free text instead of JSON)."""

    id: str
    name: str
    arguments: str
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat request.

    `answers` is the id of the call that a tool message answers, or the function's name for the legacy role
    `function`. `legacy_call` marks an assistant message that calls through `function_call`. `extras` are texts
    in other fields that providers feed to the model (`refusal`, `reasoning_content`). `marked`: the client put a
    `cache_control` on it. `digest` is the content digest of the message's raw bytes (16 bytes), `canonical` the
    digest of what makes it the same message however it is written (16 bytes; empty where nobody asked for it).
    """

    role: str
    digest: bytes
    size: int
    shape: Shape
    parts: tuple[Part, ...] = ()
    name: str | None = None
    calls: tuple[Call, ...] = ()
    legacy_call: bool = False
    answers: str | None = None
    extras: tuple[str, ...] = ()
    marked: bool = False
    canonical: bytes = b""

    @property
    def text(self) -> str:
        """Everything readable in the message: its text parts, its calls, its extras; one per line."""
        if len(self.parts) == 1 and isinstance(part := self.parts[0], Text) and not (self.calls or self.extras):
            return part.text
        lines = [part.text for part in self.parts if isinstance(part, Text)]
        lines += [f"{call.name}({call.arguments})" for call in self.calls]
        return "\n".join((*lines, *self.extras))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The top-level fields of a request that decide its budget and its overhead, decoded; the rest stays raw.

    `output_limits` are the values of max_completion_tokens, max_tokens and a thinking budget that were given.
    `tools` and `functions` are the schemas as JSON values, `response_format` likewise.
    """

    model: str | None = None
    stream: bool = False
    output_limits: tuple[int, ...] = ()
    tools: tuple[Any, ...] = ()
    functions: tuple[Any, ...] = ()
    tool_choice: Any = None
    response_format: Any = None
