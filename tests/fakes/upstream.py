"""An upstream on a loopback port that keeps what it got, to the byte, and answers as the test tells it to."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 204: "No Content", 302: "Found", 304: "Not Modified", 429: "Too Many Requests"}


@dataclass(eq=False)
class Exchange:
    """One request, and the means to answer it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes
    chunked: bool = False
    body: bytearray = field(default_factory=bytearray)
    received: asyncio.Event = field(default_factory=asyncio.Event)  # the whole request is there
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # the peer closed its connection
    gone_at: float | None = None

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0].split(b" ")[1]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.split(b"\r\n")[1:]
        pairs = (line.split(b":", 1) for line in lines if line)
        return [(name.lower(), value.strip()) for name, value in pairs]

    def header(self, name: str) -> bytes | None:
        return next((value for key, value in self.headers if key == name.encode()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def start(self, status: int = 200, *headers: tuple[str, str]) -> None:
        """A status line and header fields."""
        lines = [
            f"HTTP/1.1 {status} {REASONS.get(status, 'Whatever')}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        await self.send("\r\n".join((*lines, "", "")).encode("latin-1"))

    async def chunk(self, data: bytes) -> None:
        """One chunk of a chunked body; an empty one ends it."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def answer(self, body: bytes, status: int = 200, *headers: tuple[str, str]) -> None:
        """A whole response with a length."""
        await self.start(status, *headers, ("Content-Length", str(len(body))))
        await self.send(body)

    async def sse(self, *payloads: bytes | str, done: bool = True) -> None:
        """A stream of events, each in a chunk of its own."""
        await self.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        for payload in (*payloads, *(["[DONE]"] if done else [])):
            await self.chunk(b"data: %b\n\n" % (payload.encode() if isinstance(payload, str) else payload))
        await self.chunk(b"")

    def close(self) -> None:
        """End the connection in order."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection: the peer gets a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Exchange], Awaitable[None]]


async def completion(exchange: Exchange) -> None:
    """What an upstream answers unless told otherwise: a short chat completion."""
    message = {"role": "assistant", "content": "Hello!"}
    reply = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }
    await exchange.answer(json.dumps(reply).encode(), 200, ("Content-Type", "application/json"))


class FakeUpstream:
    """Answers every request with `handler`, which runs once the request is complete, or with `early` at its head."""

    def __init__(self) -> None:
        self.handler: Handler = completion
        self.early = False
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> Exchange:
        return self.exchanges[-1]

    async def arrival(self, count: int = 1) -> Exchange:
        """The `count`-th request, as soon as its head is there."""
        async with asyncio.timeout(5), self._arrived:
            await self._arrived.wait_for(lambda: len(self.exchanges) >= count)
        return self.exchanges[count - 1]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                await self._request(reader, writer)
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange(reader, writer, (await reader.readuntil(b"\r\n\r\n"))[:-2])
        exchange.chunked = exchange.header("transfer-encoding") == b"chunked"
        async with self._arrived:
            self.exchanges.append(exchange)
            self._arrived.notify_all()
        if not self.early:
            await self._body(exchange)
        handling = asyncio.ensure_future(self._handle(exchange))
        if self.early:
            try:
                await self._body(exchange)
            except (ConnectionError, asyncio.IncompleteReadError):
                self._left(exchange)
        watching = asyncio.ensure_future(self._watch(exchange))
        try:
            await handling
        finally:
            handling.cancel()
            watching.cancel()

    async def _handle(self, exchange: Exchange) -> None:
        with contextlib.suppress(ConnectionError):
            await self.handler(exchange)

    async def _body(self, exchange: Exchange) -> None:
        if exchange.chunked:
            while size := int(await exchange.reader.readline(), 16):
                exchange.body += await exchange.reader.readexactly(size)
                await exchange.reader.readexactly(2)
            await exchange.reader.readexactly(2)
        else:
            left = int(exchange.header("content-length") or 0)
            while left:
                if not (part := await exchange.reader.read(min(left, 1 << 16))):
                    raise asyncio.IncompleteReadError(b"", left)
                exchange.body += part
                left -= len(part)
        exchange.received.set()

    async def _watch(self, exchange: Exchange) -> None:
        """Notes the moment at which the peer closes; a peer does not pipeline here, so no byte may come."""
        while not exchange.reader.at_eof() and exchange.reader.exception() is None:  # noqa: ASYNC110 - streams have no event for it
            await asyncio.sleep(0.002)
        self._left(exchange)

    def _left(self, exchange: Exchange) -> None:
        exchange.gone_at = asyncio.get_running_loop().time()
        exchange.gone.set()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def running() -> AsyncIterator[FakeUpstream]:
    """A fake upstream on a free port."""
    fake = FakeUpstream()
    server = await asyncio.start_server(fake._connection, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        await fake.close()
