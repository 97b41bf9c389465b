"""What a connection tells of its client at once: that the request is whole, and that nobody waits any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from proxy.errors import ClientGone
from proxy.http import client
from proxy.http.heads import BoundedHeads
from proxy.http.presence import Presence
from tests.fakes.server import RawClient, connected


class Waiting:
    """Reads a request, then works until its client is gone."""

    def __init__(self) -> None:
        self.whole: list[bool] = []
        self.begun, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = client.of(scope)
        assert known is not None
        while True:
            message = await receive()
            self.whole.append(known.whole)
            if not message.get("more_body", False):
                break
        try:
            async with Presence(receive, known):
                self.begun.set()
                await asyncio.sleep(60)
        except ClientGone:
            self.left.set()


@asynccontextmanager
async def talking(app: Waiting | PlainTextResponse) -> AsyncIterator[RawClient]:
    config = uvicorn.Config(app, http=BoundedHeads, port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.001)
    try:
        async with connected(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}") as raw:
            yield raw
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("size", [1, 300_000], ids=["small", "more than is read ahead"])
async def test_work_ends_with_its_client(size: int) -> None:
    app = Waiting()
    async with talking(app) as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        await asyncio.wait_for(app.begun.wait(), 5)
        raw.writer.transport.abort()

        await asyncio.wait_for(app.left.wait(), 5)

    assert app.whole[-1]


async def test_a_body_that_is_still_to_come_is_not_whole() -> None:
    app = Waiting()
    async with talking(app) as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
        await asyncio.sleep(0.05)
        await raw.send(b"b")
        await asyncio.wait_for(app.begun.wait(), 5)
        raw.writer.transport.abort()
        await asyncio.wait_for(app.left.wait(), 5)

    assert app.whole == [False, True]


async def test_all_who_wait_on_one_connection_leave_with_it() -> None:
    app = Waiting()
    async with talking(app) as raw:
        await raw.send(2 * b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        await asyncio.wait_for(app.begun.wait(), 5)
        raw.writer.transport.abort()

        await asyncio.wait_for(app.left.wait(), 5)


async def test_a_client_that_has_left_before_ends_work_that_begins() -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await PlainTextResponse("ok")(scope, receive, send)

    async with talking(app) as raw:  # type: ignore[arg-type]
        await raw.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await raw.head()
        known = client.of(scopes[0])
        assert known is not None
        assert known.answered
        known.leave()

    async def receive() -> dict[str, str]:
        raise AssertionError("the client itself tells")

    async def work() -> None:
        async with Presence(receive, known):
            await asyncio.sleep(5)

    with pytest.raises(ClientGone):
        await work()
