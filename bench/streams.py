"""Streams that both sides know beforehand: an upstream that sends them, or fails as it is told, and a client.

What an answer is made of stands in the request's `x-bench` field, which the proxy passes on: seed, number of chunks,
seconds between them, fault. So the client knows every byte that must come.
"""

import asyncio
import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

BROKEN = ("reset_before", "reset_body", "half_chunk", "no_final", "stall")  # the client must see the break
WHOLE = ("garbage", "error")  # relayed to their last byte
LEAVES = "leave"  # the client's own fault
FAULTS = (*BROKEN, *WHOLE, LEAVES)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ERROR = json.dumps({"error": {"message": "x" * 300_000, "type": "server_error", "code": None}}).encode()
GARBAGE = b"\x00\xff\xfe data: {\r\r\n\n{]]\xf0\x9f\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One answer."""

    seed: int
    chunks: int
    gap_s: float = 0.0
    fault: str = ""

    @property
    def text(self) -> str:
        """The stream as the `x-bench` field has it."""
        return f"{self.seed} {self.chunks} {self.gap_s} {self.fault}"

    @classmethod
    def of(cls, text: str) -> "Stream":
        """The stream of an `x-bench` field."""
        seed, chunks, gap_s, fault = text.split(" ")
        return cls(seed=int(seed), chunks=int(chunks), gap_s=float(gap_s), fault=fault)

    def pieces(self) -> list[bytes]:
        """The body, chunk by chunk."""
        rng = random.Random(self.seed)
        made = []
        for number in range(self.chunks):
            delta = {"content": "".join(rng.choices("aeiou nrst ö漢🙂", k=rng.randint(1, 60)))}
            event = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            made.append(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")
            if self.fault == "garbage" and number == self.chunks // 2:
                made.append(GARBAGE)
        made.append(b"data: [DONE]\n\n")
        return made

    @property
    def body(self) -> bytes:
        """Every byte that must come, if nothing breaks off."""
        return ERROR if self.fault == "error" else b"".join(self.pieces())


@dataclass(slots=True)
class Source:
    """The upstream. `busy` counts requests under way, `seen` the seeds asked for, `gone` when the peer of one left."""

    busy: int = 0
    seen: set[int] = field(default_factory=set)
    gone: dict[int, float] = field(default_factory=dict)
    port: int = 0
    clock: Callable[[], float] = time.perf_counter
    stamp: Callable[[], bytes] | None = None  # makes an event's bytes when it is sent, in place of the stream's own

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        stream = None
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0] or 0))
                stream = Stream.of(head.partition("x-bench: ")[2].split("\r\n")[0])
                self.seen.add(stream.seed)
                self.busy += 1
                try:
                    if not await self._answer(stream, reader, writer):
                        return
                finally:
                    self.busy -= 1
                stream = None
        except (ConnectionError, asyncio.IncompleteReadError):
            if stream is not None:
                self.gone[stream.seed] = self.clock()
        finally:
            writer.close()

    async def _answer(self, stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send a stream; whether the connection can be used again."""
        if stream.fault == "reset_before":
            _reset(writer)
            return False
        if stream.fault == "error":
            writer.write(
                b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ERROR)
            )
            writer.write(ERROR)
            await writer.drain()
            return True
        writer.write(HEAD)
        left = asyncio.create_task(reader.read(1))  # a client pipelines nothing here: this ends when it leaves
        try:
            pieces = stream.pieces()
            for number, piece in enumerate(pieces):
                if number == len(pieces) // 2 and stream.fault in ("reset_body", "half_chunk", "stall"):
                    return await self._break(stream.fault, left, writer)
                piece = self.stamp() if self.stamp is not None and number < len(pieces) - 1 else piece
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                if stream.gap_s:
                    await asyncio.wait({left}, timeout=stream.gap_s)
                if left.done():
                    raise ConnectionResetError
            if stream.fault == "no_final":
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        finally:
            left.cancel()
            await asyncio.wait({left})

    async def _break(self, fault: str, left: "asyncio.Task[bytes]", writer: asyncio.StreamWriter) -> bool:
        if fault == "reset_body":
            _reset(writer)
        elif fault == "half_chunk":
            writer.write(b"ffff\r\ndata: half of")
        else:
            await asyncio.wait({left})
        return False


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def source() -> AsyncIterator[Source]:
    """An upstream on a free port."""
    made = Source()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, backlog=4096)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@dataclass(frozen=True, slots=True)
class Got:
    """What came of a request: `whole` says that the transfer ended in order."""

    status: int
    body: bytes
    whole: bool


async def ask(
    port: int,
    stream: Stream,
    body: bytes,
    *,
    leave_after: int | None = None,
    on_chunk: Callable[[bytes], None] | None = None,
) -> Got:
    """Ask the proxy for a stream on a connection of its own, and leave after so many chunks, if at all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    status, got, chunks = 0, bytearray(), 0
    try:
        fields = f"host: a\r\nx-bench: {stream.text}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
        if leave_after == 0:
            return Got(0, b"", False)
        answered = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answered.split(b" ")[1])
        if b"transfer-encoding: chunked" not in answered:
            size = int(answered.partition(b"content-length: ")[2].split(b"\r\n")[0])
            return Got(status, await reader.readexactly(size), True)
        while size := int(await reader.readuntil(b"\r\n"), 16):
            chunk = (await reader.readexactly(size + 2))[:-2]
            got += chunk
            chunks += 1
            if on_chunk is not None:
                on_chunk(chunk)
            if leave_after is not None and chunks >= leave_after:
                return Got(status, bytes(got), False)
        await reader.readexactly(2)
        return Got(status, bytes(got), True)
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        return Got(status, bytes(got), False)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def judge(stream: Stream, got: Got) -> str | None:
    """What is wrong with an answer; None where it is what it must be."""
    if stream.fault == LEAVES:
        return None if stream.body.startswith(got.body) else "other bytes before the client left"
    if stream.fault == "reset_before":
        return None if got.status == 502 else f"status {got.status} for an upstream that reset"
    if stream.fault in BROKEN:
        if got.whole:
            return "a broken stream looks whole"
        return (
            None if stream.body.startswith(got.body.removesuffix(b"data: half of")) else "other bytes before the break"
        )
    if got.status != (500 if stream.fault == "error" else 200):
        return f"status {got.status}: {got.body[:200]!r}"
    if not got.whole:
        return f"not whole: {len(got.body)} of {len(stream.body)} bytes, status {got.status}"
    return None if got.body == stream.body else "other bytes"
