"""Reads a copy of a reply's bytes: what the model said, why it stopped, what it cost.

Sans-IO, like h11: `feed` bytes in whatever pieces they come, then ask for the `result`. SSE or JSON, compressed
or not; whatever the bytes are, nothing is raised and the work is linear in them.

    bytes → codings → SseEvents → Assembly (chunks)  ┐
                    ↘ JsonBody  → Assembly (reply)   ┴→ Reading

Which of the two it is, the content type says if it is `text/event-stream`, else the first byte. An error written
into an event stream without any framing is found too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from proxy.http import codings
from proxy.streaming.assembly import Assembly, Usage
from proxy.streaming.sse import Events

EVENT_LIMIT = 1 << 20
BODY_LIMIT = 8 << 20
_LOT = 1 << 13  # bytes
_TAIL = 1 << 16  # of a body too large to keep, this much of its end is searched for the usage
_INFLATED_LIMIT = 1 << 28  # an honest reply is far smaller; beyond this a compressed one is not read on


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reply said, as far as it came.

    `finish_reasons` are by choice index. `message` is choice 0's assistant message as a client would send it
    back. `error` is the first error object seen. `done`: the reply said that it is complete (`[DONE]`, or a whole
    JSON body). `truncated`: something was larger than its limit and was left out.
    """

    finish_reasons: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    usage: Usage | None = None
    message: dict[str, Any] | None = None
    error: Any = None
    done: bool = False
    truncated: bool = False


class _Body(Protocol):
    def feed(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class _JsonBody:
    """A JSON reply, kept up to a limit; beyond it, only its end is."""

    def __init__(self, assembly: Assembly, limit: int) -> None:
        self._assembly = assembly
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._limit:
            self._parts.append(data)
            return
        if self._parts:
            self._tail += b"".join(self._parts)[-_TAIL:]
            self._parts.clear()
        self._tail += data[-_TAIL:]
        if len(self._tail) > 4 * _TAIL:
            del self._tail[:-_TAIL]

    def close(self) -> None:
        if self._size > self._limit:
            self._assembly.truncated = True
            self._assembly.take_tail(bytes(self._tail))
        elif self._size:
            self._assembly.take_reply(b"".join(self._parts))
        self._parts.clear()


class _EventStream:
    """An SSE reply."""

    def __init__(self, assembly: Assembly, limit: int) -> None:
        self._assembly = assembly
        self._events = Events(limit)

    def feed(self, data: bytes) -> None:
        for event, payload in self._events.feed(data):
            self._assembly.take_event(event, payload)

    def close(self) -> None:
        for event, payload in self._events.close():
            self._assembly.take_event(event, payload)
        if self._events.stray:
            self._assembly.take_stray(bytes(self._events.stray))
        self._assembly.truncated |= self._events.truncated


class Reader:
    """Reads one reply. `content_type` and `content_encoding` are the values of its header fields."""

    def __init__(
        self,
        content_type: str = "",
        content_encoding: str = "",
        *,
        event_limit: int = EVENT_LIMIT,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._is_events = content_type.strip().lower().startswith("text/event-stream")
        self._coded = bool(codings.names(content_encoding))
        self._decoder = codings.decoder(content_encoding) if self._coded else None
        self._readable = self._decoder is not None or not self._coded
        self._inflated = 0
        self._waiting: list[bytes] = []
        self._size_waiting = 0
        self._event_limit = event_limit
        self._assembly = Assembly(body_limit)
        self._body_limit = body_limit
        self._body: _Body | None = None
        self._result: Reading | None = None

    def feed(self, data: bytes) -> None:
        """The next bytes of the reply; ignored once the result was asked for.

        They are read in lots of a few kilobytes, so that handing small events on is not held up by each of them.
        """
        if not data or not self._readable or self._result is not None:
            return
        self._waiting.append(data)
        self._size_waiting += len(data)
        if self._size_waiting >= _LOT:
            self._read()

    def _read(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size_waiting = 0
        if not data:
            return
        if self._decoder is None:
            self._take(data)
            return
        try:
            for piece in self._decoder.feed(data):
                self._inflated += len(piece)
                if self._inflated > _INFLATED_LIMIT:
                    self._readable, self._assembly.truncated = False, True
                    return
                self._take(piece)
        except codings.CorruptError:
            self._readable = False

    def result(self) -> Reading:
        """What was read; what was still open counts as ended."""
        if self._result is None:
            self._read()
            if self._body is not None:
                self._body.close()
            made = self._assembly
            self._result = Reading(
                finish_reasons=MappingProxyType(made.finish_reasons),
                usage=made.usage,
                message=made.message(),
                error=made.error,
                done=made.done,
                truncated=made.truncated,
            )
        return self._result

    def _take(self, data: bytes) -> None:
        if self._body is None:
            start = data.removeprefix(b"\xef\xbb\xbf").lstrip()
            if not start and not self._is_events:
                return
            if self._is_events or not start.startswith((b"{", b"[")):
                self._body = _EventStream(self._assembly, self._event_limit)
            else:
                self._body = _JsonBody(self._assembly, self._body_limit)
                data = start
        self._body.feed(data)
