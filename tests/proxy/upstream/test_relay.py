"""What a relay promises its owner, whatever becomes of either side."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.errors import UpstreamError
from proxy.guard import Faults
from proxy.upstream.relay import End, Relay

HEADERS = [(b"content-type", b"text/event-stream"), (b"x-trimtab-action", b"of another proxy")]


class FakeReply:
    status = 200
    headers = HEADERS

    def __init__(self, *chunks: bytes | Exception) -> None:
        self._chunks = chunks
        self.closed = 0
        self.ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await asyncio.sleep(0)
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def aclose(self) -> None:
        self.closed += 1


class Client:
    """Both ends of an ASGI connection; it leaves when told to, and after the last message, as with uvicorn."""

    def __init__(self) -> None:
        self.sent: list[dict] = []
        self.leaving = asyncio.Event()

    async def receive(self) -> dict:
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.leaving.set()
            await asyncio.sleep(0.01)

    @property
    def body(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]

    @property
    def complete(self) -> bool:
        return not self.sent[-1].get("more_body", True)


async def run(relay: Relay, client: Client, method: str = "POST") -> None:
    await relay({"type": "http", "method": method}, client.receive, client.send)


async def test_chunks_are_seen_after_they_are_sent_and_the_end_once() -> None:
    reply, client, log = FakeReply(b"a", b"b"), Client(), []
    relay = Relay(
        reply,
        extra=[(b"x-trimtab-action", b"pass")],
        on_chunk=lambda chunk: log.append((chunk, len(client.sent))),
        on_end=lambda end: log.append((end, reply.closed)),
    )
    await run(relay, client)
    await relay.aclose()
    assert log == [(b"a", 2), (b"b", 3), (End.EOF, 1)]
    assert client.sent[0]["headers"] == [HEADERS[0], (b"x-trimtab-action", b"pass")]
    assert client.body == [b"a", b"b", b""]
    assert client.complete


async def test_faults_of_readers_stay_out_of_the_relay() -> None:
    def fail(_: object) -> None:
        raise ValueError("reader")

    reply, client, faults = FakeReply(b"a", b"b"), Client(), Faults()
    await run(Relay(reply, on_chunk=fail, on_end=fail, faults=faults), client)
    assert client.complete
    assert reply.closed == 1
    assert faults.names == ["on_chunk", "on_end"]


@pytest.mark.parametrize(
    ("code", "end"),
    [("upstream_broken", End.UPSTREAM_ERROR), ("upstream_timeout", End.UPSTREAM_TIMEOUT)],
)
async def test_a_reply_that_breaks_off_is_never_completed(code, end) -> None:
    reply, client, ends = FakeReply(b"a", UpstreamError(code, "broken")), Client(), []
    await run(Relay(reply, on_end=ends.append), client)
    assert client.body == [b"a"]
    assert not client.complete
    assert (ends, reply.closed) == ([end], 1)


async def test_a_client_that_leaves_ends_the_turn() -> None:
    class Stalled(FakeReply):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a"
            client.leaving.set()
            await asyncio.sleep(60)

    client, ends = Client(), []
    reply = Stalled()
    await run(Relay(reply, on_end=ends.append), client)
    assert (ends, reply.closed) == ([End.CLIENT_GONE], 1)


async def test_a_server_that_cannot_send_says_that_the_client_has_left() -> None:
    class Unplugged(Client):
        async def send(self, message: dict) -> None:
            raise BrokenPipeError

    ends: list[End] = []
    reply = FakeReply(b"a")
    await run(Relay(reply, on_end=ends.append), Unplugged())
    assert (ends, reply.closed) == ([End.CLIENT_GONE], 1)


async def test_a_server_that_stops_ends_the_turn_and_is_obeyed() -> None:
    class Stalled(FakeReply):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a"
            await asyncio.sleep(60)

    ends: list[End] = []
    reply = Stalled()
    task = asyncio.create_task(run(Relay(reply, on_end=ends.append), Client()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ends, reply.closed) == ([End.CANCELLED], 1)


async def test_a_relay_that_is_never_sent_can_be_closed() -> None:
    ends: list[End] = []
    reply = FakeReply(b"a")
    relay = Relay(reply, on_end=ends.append)
    await relay.aclose(End.UPSTREAM_ERROR)
    await relay.aclose()
    assert (ends, reply.closed) == ([End.UPSTREAM_ERROR], 1)


async def test_a_head_request_gets_no_body() -> None:
    client = Client()
    await run(Relay(FakeReply(b"never")), client, "HEAD")
    assert client.body == [b""]


async def test_a_chunk_that_is_known_to_be_the_last_ends_the_answer() -> None:
    class Whole(FakeReply):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a"
            self.ended = True
            yield b"b"

    seen: list[bytes] = []
    ends: list[End] = []
    client, reply = Client(), Whole()
    await run(Relay(reply, on_chunk=seen.append, on_end=ends.append), client)  # type: ignore[arg-type]
    assert client.body == [b"a", b"b"]
    assert client.complete
    assert seen == [b"a", b"b"]
    assert ends == [End.EOF]
    assert reply.closed == 1
