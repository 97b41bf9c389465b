"""One kept-alive HTTP/1.1 connection to an upstream: a whole request goes out at once, its answer comes as it arrives.

llhttp (by httptools) reads the answers, as leniently as aiohttp's own parser does. Between two requests nothing may
come; a connection on which something does is not used again, since nobody knows whom it would answer.
"""

import asyncio
from typing import cast

import httptools
import httpx

Fields = list[tuple[bytes, bytes]]

_HEAD_LIMIT = 1 << 20  # bytes of an answer's head, interim ones together with it
_AHEAD = 1 << 18  # bytes that are kept for a reader that is slower than the upstream
_COPIED = 1 << 16  # bytes; what is larger is worth a call that takes both as they are
_SWITCHING = 101
_BODILESS = (204, 304)  # to other methods than HEAD and CONNECT, which are not asked here


class Connection(asyncio.Protocol):
    """`ask`, then `read` until nothing comes; `reusable` says whether the next request may use it.

    A wait for the next bytes that takes `idle_s` seconds fails. One timer for the whole connection sees to that.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._asked = 0.0  # since when something is waited for
        self._timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._paused = False
        self._error: httpx.TransportError | None = None
        self._open = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._reset()
        self._complete = True  # nothing was asked

    def _reset(self) -> None:
        self._head_size = 0
        self._told = False  # the head is there
        self._complete = False
        self._until_end = False
        self._persistent = False
        self.status = 0
        self.headers: Fields = []

    # What a transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._open = True
        self._timer = self._loop.call_later(self._idle_s, self._look)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._complete:
            self.abort()
            return
        if not self._told:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # `on_headers_complete` has seen it
        except httptools.HttpParserError:
            self._fail(httpx.RemoteProtocolError("HttpParserError"))
        if not self._told and self._head_size > _HEAD_LIMIT:
            self._fail(httpx.RemoteProtocolError("the head of the answer has no end"))
        self._wake()

    def eof_received(self) -> None:
        """The upstream sends no more; the transport closes itself then."""
        self._end(httpx.ReadError("ServerDisconnectedError"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self._end(httpx.ReadError(type(exc).__name__ if exc else "ServerDisconnectedError"))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailer, which goes nowhere."""
        if not self._told:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """A head is there, perhaps an interim one."""
        status = self._parser.get_status_code()
        if status < 200 and status != _SWITCHING:
            self.headers = []
            return
        self.status, self._told = status, True
        coding = b",".join([value for name, value in self.headers if name == b"transfer-encoding"])
        if coding:
            self._until_end = coding.lower().rpartition(b",")[2].strip() != b"chunked"
        else:
            self._until_end = not (status in _BODILESS or any(name == b"content-length" for name, _ in self.headers))
        self._complete = status == _SWITCHING

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > _AHEAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """An answer is there, body and all, or an interim one."""
        if self._told and not self._complete:
            self._complete = True
            self._persistent = self._parser.should_keep_alive() and not self._until_end

    def on_message_begin(self) -> None:
        """An answer begins; one that nobody asked for spoils the connection."""
        if self._complete:
            self._persistent = False

    # What its user calls.

    @property
    def ended(self) -> bool:
        """Whether the answer has been read to its end, which came in order."""
        return self._complete and not self._parts and self._error is None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent."""
        return self._open and self._complete and self._error is None and not self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Whether another request can follow on the one that has been answered."""
        return self._persistent and self.usable and not self._parts and not self._transport.get_write_buffer_size()

    async def ask(self, head: bytes, body: bytes) -> None:
        """Send a request; returns once `status` and `headers` of its answer are there. Raises httpx.TransportError."""
        self._reset()
        if len(body) <= _COPIED:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        while not self._told:
            await self._wait()

    async def read(self) -> bytes:
        """The next bytes of the body, none at its end. Raises httpx.TransportError."""
        while not self._parts:
            if self._complete:
                return b""
            await self._wait()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    def abort(self) -> None:
        """End the connection at once, which tells the upstream to stop."""
        self._persistent = False
        if self._open:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        self._asked = self._loop.time()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, error: httpx.TransportError) -> None:
        """Nothing more comes: that is the end of a body without a length, and cuts off any other."""
        self._persistent = False
        if self._told and self._until_end:
            self._complete = True
            self._wake()
        elif not self._complete:
            self._fail(error)

    def _fail(self, error: httpx.TransportError) -> None:
        self._error = self._error or error
        self.abort()
        self._wake()

    def _look(self) -> None:
        """Fail what has waited too long; come again when what waits, or the next, might have."""
        waited = self._loop.time() - self._asked if self._waiter is not None else 0.0
        if waited < self._idle_s:
            self._timer = self._loop.call_later(self._idle_s - waited, self._look)
        else:
            self._fail(httpx.ReadTimeout("nothing came in time"))
