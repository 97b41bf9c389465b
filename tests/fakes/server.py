"""An ASGI application served by uvicorn on a free loopback port, in the test's own loop; and a raw client."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def serving(app: ASGIApp, *, ws: str = "auto", http: str = "auto") -> AsyncIterator[str]:
    """The URL of the served application."""
    config = uvicorn.Config(
        app,
        ws=ws,
        http=http,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        async with asyncio.timeout(10):
            while not server.started:
                if task.done():
                    await task
                    raise RuntimeError("the application did not start")
                await asyncio.sleep(0.001)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        sock.close()


class RawClient:
    """A client that writes and reads exact bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def request(self, method: str, target: bytes, *headers: tuple[str, str], body: bytes = b"") -> None:
        """A request with a length, where it has a body."""
        lines = [b"%b %b HTTP/1.1" % (method.encode(), target), b"Host: proxy.test"]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
        if body:
            lines.append(b"Content-Length: %d" % len(body))
        await self.send(b"\r\n".join((*lines, b"", b"")) + body)

    async def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Status and header fields of the response."""
        async with asyncio.timeout(5):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        fields = [tuple(line.split(b": ", 1)) for line in lines[1:] if line]
        return int(lines[0].split(b" ")[1]), fields  # type: ignore[return-value]

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body, as it was framed."""
        async with asyncio.timeout(5):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        async with asyncio.timeout(5):
            return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RawClient]:
    """A raw client of the server at `url`."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
