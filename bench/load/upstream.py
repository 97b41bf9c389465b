"""An upstream that costs next to nothing: it answers at once, with a completion or a stream of chunks.

`python -m bench.load.upstream PORT` listens on 127.0.0.1 until it is killed. A body that says `"stream": true` gets
`CHUNKS` events, one every `CHUNK_GAP_S` seconds (environment); each carries the time it was sent at, in seconds of
time.perf_counter, as its content.
"""

import asyncio
import os
import sys
import time
from typing import cast

import uvloop

CHUNKS = int(os.environ.get("CHUNKS", "50"))
CHUNK_GAP_S = float(os.environ.get("CHUNK_GAP_S", "0.02"))

REPLY = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(REPLY)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%r"}}]}\n\n'


class Answering(asyncio.Protocol):
    """One connection: waits for a whole request, answers it, waits for the next."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self.transport = cast("asyncio.WriteTransport", transport)  # uvloop's is no subclass
        self.data = bytearray()
        self.end = 0  # of the request, once its head is there

    def data_received(self, data: bytes) -> None:  # noqa: D102
        self.data += data
        if not self.end:
            start = self.data.find(b"\r\n\r\n")
            if start < 0:
                return
            head = bytes(self.data[:start]).lower()
            self.end = start + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(self.data) < self.end:
            return
        body = self.data[-200:]
        self.data.clear()
        self.end = 0
        if b'"stream":true' in body or b'"stream": true' in body:
            asyncio.get_running_loop().create_task(self.stream())
        else:
            self.transport.write(HEAD + REPLY)

    async def stream(self) -> None:
        """Send the events."""
        self.transport.write(STREAM_HEAD)
        for _ in range(CHUNKS):
            event = EVENT.replace(b"%r", b"%.9f" % time.perf_counter())
            self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(CHUNK_GAP_S)
        self.transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def main(port: int) -> None:
    """Serve on a port until cancelled."""
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
