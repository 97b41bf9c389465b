"""The connections to one upstream: opened when they are needed, kept for a while, and used again, the newest first."""

import asyncio
import socket
import ssl
from collections.abc import Sequence

import httpx
from aiohappyeyeballs import AddrInfoType, start_connection

from proxy.upstream.connection import Connection

_RESOLVED_S = 30.0  # how long the addresses of a name are believed
_NEXT_S = 0.25  # after which the next address is tried beside one that does not answer (RFC 8305)
_REPEATABLE = frozenset({b"GET", b"OPTIONS", b"PUT", b"DELETE"})


class Answer:
    """What came of a request over a pooled connection, its body still to be read."""

    __slots__ = ("_connection", "_pool", "headers", "read", "status")

    def __init__(self, connection: Connection, pool: "Pool") -> None:
        self._connection = connection
        self._pool = pool
        self.status = connection.status
        self.headers: Sequence[tuple[bytes, bytes]] = connection.headers
        self.read = connection.read  # itself: each chunk of a stream comes this way

    @property
    def ended(self) -> bool:
        """Whether the body has been read to its end, which came in order."""
        return self._connection.ended

    async def aclose(self) -> None:
        """Let the connection go; one that is not read to its end is closed, which tells the upstream to stop."""
        self._pool.give_back(self._connection)


class Pool:
    """Connections to `host`, over TLS where `tls` is given.

    `connect_s` bounds name resolution, connecting and TLS together, `idle_s` the silence before and between bytes. A
    connection that nobody uses is closed after `keepalive_s`. All in seconds.
    """

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, *, connect_s: float, idle_s: float, keepalive_s: float
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._keepalive_s = keepalive_s
        self._kept: list[tuple[Connection, float]] = []  # and until when
        self._sweep: asyncio.TimerHandle | None = None
        self._addresses: tuple[Sequence[AddrInfoType], float] = ((), 0.0)

    async def send(self, method: bytes, head: bytes, body: bytes) -> Answer:
        """The answer to a request as soon as its head is there. Raises httpx.TransportError.

        A kept connection may have been closed just before: what can be sent twice is, then.
        """
        kept = self._take()
        connection = kept or await self._connect()
        try:
            try:
                await connection.ask(head, body)
            except httpx.ReadError:
                if kept is None or method not in _REPEATABLE:
                    raise
                connection = await self._connect()
                await connection.ask(head, body)
        except BaseException:
            connection.abort()
            raise
        return Answer(connection, self)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it."""
        if not connection.reusable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._kept.append((connection, loop.time() + self._keepalive_s))
        if self._sweep is None:
            self._sweep = loop.call_later(self._keepalive_s, self._close_old)

    def close(self) -> None:
        """Close what is kept."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection, _ in self._kept:
            connection.abort()
        self._kept.clear()

    def _take(self) -> Connection | None:
        while self._kept:
            connection, until = self._kept.pop()
            if connection.usable and until > asyncio.get_running_loop().time():
                return connection
            connection.abort()
        return None

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        kept, self._kept = self._kept, []
        for connection, until in kept:
            if until > loop.time() and connection.usable:
                self._kept.append((connection, until))
            else:
                connection.abort()
        self._sweep = loop.call_later(self._keepalive_s, self._close_old) if self._kept else None

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                sock = await start_connection(await self._resolved(), happy_eyeballs_delay=_NEXT_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                _, connection = await asyncio.get_running_loop().create_connection(  # closes the socket if it fails
                    lambda: Connection(self._idle_s),
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls is not None else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(type(error).__name__) from error
        except OSError as error:
            raise httpx.ConnectError(type(error).__name__) from error
        return connection

    async def _resolved(self) -> Sequence[AddrInfoType]:
        loop = asyncio.get_running_loop()
        known, until = self._addresses
        if until < loop.time():
            known = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = known, loop.time() + _RESOLVED_S
        return known
