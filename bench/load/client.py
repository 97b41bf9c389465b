"""A load generator over raw sockets, so that what is measured is the server's time and not the client's."""

import asyncio
import re
import time
from dataclasses import dataclass, field

_SENT = re.compile(rb'"content":"(\d+\.\d+)"')


@dataclass(slots=True)
class Connection:
    """One kept-alive connection to a server on 127.0.0.1."""

    port: int
    path: str = "/v1/chat/completions"
    reader: asyncio.StreamReader | None = field(default=None)
    writer: asyncio.StreamWriter | None = field(default=None)

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)

    def close(self) -> None:
        """Hang up."""
        if self.writer is not None:
            self.writer.close()

    def _send(self, body: bytes) -> asyncio.StreamReader:
        assert self.reader is not None
        assert self.writer is not None
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-bench\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        return self.reader

    async def post(self, body: bytes) -> float:
        """Seconds from sending a request to the end of its answer.

        Raises:
            RuntimeError: the answer is no 200.
        """
        start = time.perf_counter()
        reader = self._send(body)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode("latin-1"))
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        else:
            await reader.readexactly(int(lower.partition(b"content-length:")[2].split(b"\r\n")[0]))
        return time.perf_counter() - start

    async def stream(self, body: bytes) -> tuple[float, list[float]]:
        """Seconds to the first byte of the body, and each chunk's delay since the upstream sent it."""
        start = time.perf_counter()
        reader = self._send(body)
        await reader.readuntil(b"\r\n\r\n")
        first = 0.0
        delays: list[float] = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            chunk = await reader.readexactly(size + 2)
            now = time.perf_counter()
            first = first or now - start
            delays += [now - float(sent) for sent in _SENT.findall(chunk)]
        await reader.readexactly(2)
        return first, delays
