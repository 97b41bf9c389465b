"""The size of a request's head, and the time that it has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from proxy.http.heads import BoundedHeads
from tests.fakes.server import RawClient, connected


class Small(BoundedHeads):
    max_bytes = 2000
    timeout_s = 0.3


@asynccontextmanager
async def talking() -> AsyncIterator[RawClient]:
    """A client of a server whose heads are small and quick."""
    config = uvicorn.Config(PlainTextResponse("ok"), http=Small, port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.001)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with connected(f"http://127.0.0.1:{port}") as raw:
            yield raw
    finally:
        server.should_exit = True
        await task


def head(field: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (b"x" * field)


async def test_heads_up_to_the_limit_pass_one_after_another() -> None:
    async with talking() as raw:
        for _ in range(5):
            await raw.send(head(1900))
            assert (await raw.head())[0] == 200
            assert await raw.reader.readexactly(2) == b"ok"


async def test_a_body_is_no_head() -> None:
    async with talking() as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")
        for _ in range(5):
            await raw.send(b"x" * 1000)
        assert (await raw.head())[0] == 200
        assert await raw.reader.readexactly(2) == b"ok"
        await raw.send(head(1))
        assert (await raw.head())[0] == 200


@pytest.mark.parametrize(
    "pieces", [[head(2000)], [head(3000)[at : at + 100] for at in range(0, 2100, 100)]], ids=["at once", "in pieces"]
)
async def test_a_larger_head_is_refused_and_the_connection_closed(pieces: list[bytes]) -> None:
    async with talking() as raw:
        for piece in pieces:
            await raw.send(piece)
            await asyncio.sleep(0)
        status, fields = await raw.head()

    assert status == 431
    assert (b"connection", b"close") in fields


@pytest.mark.parametrize(
    "start", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: a\r\n"], ids=["nothing", "line", "fields"]
)
async def test_a_head_that_does_not_come_ends_the_connection(start: bytes) -> None:
    async with talking() as raw:
        await raw.send(start)

        assert await raw.rest() == b""


async def test_an_answer_may_take_longer_than_a_head() -> None:
    async with talking() as raw:
        await raw.send(head(1))
        assert (await raw.head())[0] == 200
        await raw.reader.readexactly(2)
        await asyncio.sleep(0.4)
        await raw.send(head(1))
        assert (await raw.head())[0] == 200


async def test_a_body_that_trickles_behind_its_answer_ends_the_connection() -> None:
    async with talking() as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
        assert (await raw.head())[0] == 200
        assert await raw.reader.readexactly(2) == b"ok"

        async with asyncio.timeout(5):
            with suppress(ConnectionError):
                while not raw.reader.at_eof():
                    await raw.send(b"x")
                    await asyncio.sleep(0.02)


async def test_a_body_that_is_whole_soon_behind_its_answer_ends_nothing() -> None:
    async with talking() as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx")
        assert (await raw.head())[0] == 200
        await raw.reader.readexactly(2)
        await raw.send(b"x" + head(1))
        assert (await raw.head())[0] == 200
        await raw.reader.readexactly(2)
        await asyncio.sleep(0.4)
        await raw.send(head(1))
        assert (await raw.head())[0] == 200
