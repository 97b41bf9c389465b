"""Connections that are used again, those that must not be, and how answers end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fakes.upstream import Exchange, FakeUpstream

from proxy.upstream.pool import Answer, Pool


@asynccontextmanager
async def pooled(upstream: FakeUpstream, **options: float) -> AsyncIterator[Pool]:
    made = Pool("127.0.0.1", upstream.port, None, **{"connect_s": 2.0, "idle_s": 2.0, "keepalive_s": 15.0, **options})
    try:
        yield made
    finally:
        made.close()


async def asked(pool: Pool, method: bytes = b"POST", body: bytes = b"{}") -> Answer:
    return await pool.send(
        method, b"%b /x HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % (method, len(body)), body
    )


async def whole(answer: Answer) -> bytes:
    parts = []
    try:
        while part := await answer.read():
            parts.append(part)
    finally:
        await answer.aclose()
    return b"".join(parts)


def raw(*pieces: bytes, close: bool = False):
    async def answer(exchange: Exchange) -> None:
        for piece in pieces:
            await exchange.send(piece)
        if close:
            exchange.close()

    return answer


async def answered_and_watched(exchange: Exchange) -> None:
    await exchange.answer(b"ok")
    await exchange.gone.wait()


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "close", "body", "connections"),
    [
        pytest.param([OK + b"content-length: 2\r\n\r\nok"], False, b"ok", 1, id="a length"),
        pytest.param([OK + b"content-length: 0\r\n\r\n"], False, b"", 1, id="no body"),
        pytest.param([CHUNKED, b"2\r\nok\r\n", b"0\r\n\r\n"], False, b"ok", 1, id="chunks"),
        pytest.param([CHUNKED + b"2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n"], False, b"ok", 1, id="chunks and a trailer"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], False, b"", 1, id="204"),
        pytest.param(
            [b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"content-length: 2\r\n\r\nok"], False, b"ok", 1, id="100"
        ),
        pytest.param([OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok"], False, b"ok", 2, id="asked to close"),
        pytest.param([b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"], True, b"ok", 2, id="HTTP/1.0"),
        pytest.param([OK + b"\r\n", b"o", b"k"], True, b"ok", 2, id="as long as the connection"),
        pytest.param([OK + b"transfer-encoding: gzip\r\n\r\nok"], True, b"ok", 2, id="a coding that is not chunked"),
        pytest.param([OK + b"content-length: 2\r\n\r\nokmore"], False, b"ok", 2, id="more than was promised"),
    ],
)
async def test_an_answer_is_whole_and_its_connection_used_again_only_where_it_can_be(
    upstream: FakeUpstream, pieces, close, body, connections
) -> None:
    upstream.handler = raw(*pieces, close=close)
    async with pooled(upstream) as pool:
        answers = [await whole(await asked(pool)) for _ in range(2)]
    assert answers == [body, body]
    assert upstream.connections == connections


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        pytest.param([OK + b"content-length: 9\r\n\r\nok"], httpx.ReadError, id="short of its length"),
        pytest.param([CHUNKED + b"2\r\nok\r\n"], httpx.ReadError, id="short of its last chunk"),
        pytest.param([CHUNKED + b"2\r\nok\r\n", b"zz\r\n"], httpx.RemoteProtocolError, id="no chunk"),
        pytest.param([b""], httpx.ReadError, id="nothing at all"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], httpx.RemoteProtocolError, id="no HTTP"),
        pytest.param([OK + b"x: " + b"y" * (1 << 21)], httpx.RemoteProtocolError, id="a head without an end"),
    ],
)
async def test_an_answer_that_breaks_off_is_an_error(upstream: FakeUpstream, pieces, error) -> None:
    upstream.handler = raw(*pieces, close=True)
    async with pooled(upstream) as pool:
        with pytest.raises(error):
            await whole(await asked(pool))


@pytest.mark.parametrize("begun", [b"", CHUNKED + b"2\r\nok\r\n"], ids=["before its head", "amid its body"])
async def test_silence_is_a_timeout(upstream: FakeUpstream, begun) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(begun)
        await exchange.gone.wait()

    upstream.handler = answer
    async with pooled(upstream, idle_s=0.05) as pool:
        with pytest.raises(httpx.ReadTimeout):
            await whole(await asked(pool))
        async with asyncio.timeout(2):
            await upstream.last.gone.wait()


@pytest.mark.parametrize(("method", "requests"), [(b"GET", 3), (b"POST", 2)])
async def test_what_can_be_sent_twice_is_where_a_kept_connection_has_ended(
    upstream: FakeUpstream, method, requests
) -> None:
    async def answer(exchange: Exchange) -> None:
        if len(upstream.exchanges) == 2:
            exchange.close()
        else:
            await exchange.answer(b"ok")

    upstream.handler = answer
    async with pooled(upstream) as pool:
        await whole(await asked(pool, method, b""))
        if method == b"GET":
            assert await whole(await asked(pool, method, b"")) == b"ok"
        else:
            with pytest.raises(httpx.ReadError):
                await asked(pool, method, b"")
    assert len(upstream.exchanges) == requests


async def test_a_connection_that_is_used_no_more_is_closed(upstream: FakeUpstream) -> None:
    upstream.handler = answered_and_watched
    async with pooled(upstream, keepalive_s=0.02) as pool:
        await whole(await asked(pool))
        async with asyncio.timeout(2):
            await upstream.last.gone.wait()
        await whole(await asked(pool))
    assert upstream.connections == 2


async def test_bytes_that_nobody_asked_for_end_a_connection(upstream: FakeUpstream) -> None:
    upstream.handler = answered_and_watched
    async with pooled(upstream) as pool:
        await whole(await asked(pool))
        await upstream.last.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        async with asyncio.timeout(2):
            await upstream.last.gone.wait()
        assert b"forged" not in await whole(await asked(pool))
    assert upstream.connections == 2


async def test_a_slow_reader_holds_the_upstream_back(upstream: FakeUpstream) -> None:
    size = 1 << 24
    sent = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"x" * size)
        sent.set()

    upstream.handler = answer
    async with pooled(upstream) as pool:
        reply = await asked(pool)
        for _ in range(200):
            await asyncio.sleep(0)
        assert not sent.is_set()
        first = await reply.read()
        assert len(first) < size / 8
        assert len(first) + len(await whole(reply)) == size


async def test_a_request_that_is_given_up_takes_its_connection_with_it(upstream: FakeUpstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.gone.wait()

    upstream.handler = answer
    async with pooled(upstream) as pool:
        task = asyncio.create_task(asked(pool))
        exchange = await upstream.arrival()
        task.cancel()
        async with asyncio.timeout(2):
            await exchange.gone.wait()
            await asyncio.wait({task})
    assert task.cancelled()
