"""The head of a request, bounded in size and time, and what is no HTTP: answered, where uvicorn would only end it."""

import asyncio
import sys
from collections import deque
from typing import Any, ClassVar, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from proxy.http import headers, upgrades
from proxy.http.answers import error_response
from proxy.http.client import SCOPE, Client
from proxy.http.joining import Joining

MOST_WAITING = 100  # requests behind the one that is being answered, on one connection
LINGER_S = 2.0  # what a client still sends is read for so long: an end amid it would take the answer away with it


class BoundedHeads(HttpToolsProtocol):
    """One connection of a client: a head larger than `max_bytes` gets a 431, one later than `timeout_s` an end.

    So does the rest of a body whose answer is already out: nobody reads it, and nothing else would bound it. What is
    no HTTP gets a 400, or an end once the answers to what came before it are out. No protocol is changed for another,
    and the only transfer coding is `chunked`: any other gets a 501 (RFC 9112, section 6.1).
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
        self._deaf = False  # nothing that comes is read any more
        self._open = True  # a head is waited for, or is not complete
        self._clients: deque[Client] = deque()  # answered in turn
        self._data = b""  # what is being parsed
        self._again = b""  # what has to be parsed once more, its head without the wish for an upgrade
        self._wished = False  # the head that is being parsed wishes for an upgrade
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._settle()
        self._settle_rest()
        super().connection_lost(exc)
        for client in self._clients:
            if not client.answered:
                client.leave()

    def data_received(self, data: bytes) -> None:
        """Read on, and give up on a head that is too large before its end has come."""
        if self._deaf:
            return
        self._unread += len(data)
        self._parse(data)
        while self._again and not self._deaf:
            data, self._again = self._again, b""
            self._parse(data)
        self._data = b""
        if not self._open:
            self._unread = 0
            return
        self._wait()  # only now, as most heads come whole
        if self._unread > self.max_bytes:
            self._refuse_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser gave up on."""
        error = sys.exception()
        told = isinstance(error, httptools.HttpParserError) and not isinstance(error, httptools.HttpParserCallbackError)
        why = f" ({error})" if told and str(error) else ""
        self._refuse(400, "malformed_http", f"request: must be HTTP/1.1, and this cannot be read{why}")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._open = True

    def on_headers_complete(self) -> None:
        """A head is there: have it answered."""
        self._wished = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._wished:
            return
        self._open = False
        self._settle()
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.max_bytes:
            self._refuse_head()
        elif headers.tokens(self.headers, b"transfer-encoding") not in ([], [b"chunked"]):
            self._refuse(501, "transfer_coding_unsupported", "transfer-encoding: must be chunked, and nothing else")
        elif len(self.pipeline) >= MOST_WAITING:
            self._end_behind(self.cycle)  # the client sends again what was not begun (RFC 9112, section 9.3.2)
        if not self._deaf:
            super().on_headers_complete()
            client = Client(self.cycle, self.flow)
            cast("dict[str, Any]", self.scope)[SCOPE] = client
            while self._clients and self._clients[0].answered:
                self._clients.popleft()
            self._clients.append(client)

    def on_body(self, body: bytes) -> None:
        """A piece of a body is there."""
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is there, body and all."""
        if not self._deaf and not self._wished:
            self._unread = 0  # what has come so far is of this request, and not of the head behind it
            self._settle_rest()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is out, perhaps before all of its request has come."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._rest = self.loop.call_later(self.timeout_s, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Have the parser read on as if no upgrade had been wished for; it says where it stopped."""
        stopped = sys.exception()
        if self._wished and not self._deaf and stopped is not None:
            self._wished = False
            method, version = self.parser.get_method(), self.parser.get_http_version()
            head = upgrades.without(method, self.url, version, self.headers)
            self._again = head + self._data[stopped.args[0] :]

    def _parse(self, data: bytes) -> None:
        self._data = data
        super().data_received(data)

    def _refuse_head(self) -> None:
        self._refuse(431, "head_too_large", f"request head: must be at most {self.max_bytes} bytes")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Read nothing more; answer, unless an answer is due to what came before: then that is the last one."""
        if self._deaf:
            return
        self._deaf = True
        self._settle()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                self._end_behind(cycle)
                return
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        response = error_response(status, code, message)
        fields = [*response.raw_headers, (b"connection", b"close")]
        head = b"".join((STATUS_LINE[status], *(b"%b: %b\r\n" % field for field in fields), b"\r\n"))
        self.transport.write(head + bytes(response.body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._rest = self.loop.call_later(LINGER_S, self.transport.close)

    def _end_behind(self, cycle: RequestResponseCycle) -> None:
        """End the connection when this request is answered: it stands, and what follows it does not."""
        self._deaf = True
        self._settle()
        cycle.keep_alive = False

    def _wait(self) -> None:
        if self._late is None and not self._deaf:
            self._late = self.loop.call_later(self.timeout_s, self.transport.close)

    def _settle(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _settle_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
