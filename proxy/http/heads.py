"""The head of a request, bounded in size and time, which uvicorn's own protocol leaves open."""

import asyncio
from typing import Any, ClassVar, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.http.answers import error_response
from proxy.http.joining import Joining


class BoundedHeads(HttpToolsProtocol):
    """One connection of a client: a head larger than `max_bytes` gets a 431, one later than `timeout_s` an end.

    So does the rest of a body whose answer is already out: nobody reads it, and nothing else would bound it.
    uvicorn makes its protocols itself, so both are set on the class.
    """

    max_bytes: ClassVar[int] = 64 * 1024
    timeout_s: ClassVar[float] = 60.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(cast("asyncio.Transport", Joining(transport, self.loop)))
        self._late: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._unread = 0
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._settle()
        self._settle_rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and give up on a head that is too large before its end has come."""
        self._unread += len(data)
        super().data_received(data)
        if self._late is None:
            self._unread = 0  # no head is open
        elif self._unread > self.max_bytes:
            self._settle()
            self.transport.write(b"HTTP/1.1 431 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """A head is there: have it answered."""
        self._settle()
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) <= self.max_bytes:
            super().on_headers_complete()
            return
        app, self.app = self.app, _too_large
        super().on_headers_complete()
        self.app = app

    def on_message_complete(self) -> None:
        """A request is there, body and all."""
        self._settle_rest()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is out, perhaps before all of its request has come."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._rest = self.loop.call_later(self.timeout_s, self.transport.close)

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.timeout_s, self.transport.close)

    def _settle(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _settle_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None


async def _too_large(scope: Scope, receive: Receive, send: Send) -> None:
    message = f"request head: must be at most {BoundedHeads.max_bytes} bytes"
    close: Any = [(b"connection", b"close")]
    await error_response(431, "head_too_large", message, extra=close)(scope, receive, send)
