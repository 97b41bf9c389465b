"""Requests and replies through the proxy, over real sockets."""

import asyncio
import gzip
import logging
import statistics
from collections.abc import AsyncIterator

import pytest
from fakes.proxying import Passthrough
from fakes.server import RawClient, connected
from fakes.upstream import Exchange, FakeUpstream

from proxy.upstream import Upstream
from proxy.upstream.relay import End

BODY = b'{"model": "gpt-4o",  "messages":[{"role":"user","content":"hi \\u00e9\\/"}], "seed": 1.0}'


@pytest.fixture
async def app(upstream: FakeUpstream) -> Passthrough:
    return Passthrough(Upstream("fake", upstream.url, connect_s=2, idle_s=5))


@pytest.fixture
async def client(app: Passthrough, serve) -> AsyncIterator[RawClient]:
    async with connected(await serve(app)) as client:
        yield client


async def ended(app: Passthrough) -> End:
    """The end of the only turn, reported once."""
    async with asyncio.timeout(2):
        end = await app.ends.get()
    await asyncio.sleep(0.01)
    assert app.ends.empty()
    return end


def value(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key.lower() == name), None)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param([], BODY, id="plain"),
        pytest.param([("Content-Encoding", "gzip")], gzip.compress(BODY), id="compressed"),
        pytest.param([("Content-Type", "application/octet-stream")], bytes(range(256)) * 5000, id="binary, 1.2 MB"),
    ],
)
async def test_bytes_of_a_request_arrive_unchanged(client, upstream, headers, body) -> None:
    await client.request("POST", b"/v1/chat/completions", *headers, body=body)
    await client.head()
    assert bytes(upstream.last.body) == body
    assert upstream.last.header("content-length") == str(len(body)).encode()
    assert not upstream.last.chunked


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_bytes_of_a_reply_arrive_unchanged(client, upstream, coding) -> None:
    body = BODY if coding == "identity" else gzip.compress(BODY)

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(body, 429, ("Content-Encoding", coding), ("Retry-After", "7"), ("X-Unknown", "é"))

    upstream.handler = answer
    await client.request("GET", b"/v1/models", ("Connection", "close"))
    status, headers = await client.head()
    assert status == 429
    assert value(headers, b"retry-after") == b"7"
    assert value(headers, b"x-unknown") == "é".encode("latin-1")
    assert value(headers, b"content-encoding") == coding.encode()
    assert value(headers, b"transfer-encoding") is None
    assert await client.rest() == body


@pytest.mark.parametrize("field", [b"X-A: a\x01b", b"X-A: a\x7fb", b"X-A: \xff\xfe", b"X-A: a\r\n folded", b"X-A:"])
async def test_odd_fields_of_an_upstream_do_no_harm(client, upstream, caplog, field) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 \xe9\r\n" + field + b"\r\nContent-Length: 2\r\n\r\nok")

    upstream.handler = answer
    await client.request("GET", b"/v1/x")
    assert (await client.head())[0] == 200
    assert await client.reader.readexactly(2) == b"ok"
    assert not caplog.records


async def test_nothing_is_added_to_a_request(client, upstream) -> None:
    sent = [
        ("Accept", "a/b"),
        ("X-Twice", "1"),
        ("x-twice", "2"),
        ("Cookie", "a=b"),
        ("traceparent", "00-1"),
        ("X-Z", "ü"),
    ]
    await client.request(
        "GET", b"/v1/models", *sent, ("Keep-Alive", "5"), ("X-Trimtab-Session", "s"), ("TE", "trailers")
    )
    await client.head()
    forwarded = [(name.lower().encode(), value.encode("latin-1")) for name, value in sent]  # the bytes that were sent
    assert upstream.last.headers == [(b"host", f"127.0.0.1:{upstream.port}".encode()), *forwarded]


async def test_an_empty_post_gets_nothing_but_its_length(client, upstream) -> None:
    await client.request("POST", b"/v1/x")
    await client.head()
    assert [name for name, _ in upstream.last.headers] == [b"host", b"content-length"]


async def test_cookies_of_an_upstream_are_passed_on_and_not_kept(client, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"{}", 200, ("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2"))

    upstream.handler = answer
    for _ in range(2):
        await client.request("GET", b"/v1/models")
        _, headers = await client.head()
        assert [value for name, value in headers if name == b"set-cookie"] == [b"a=1; Path=/", b"b=2"]
        await client.reader.readexactly(2)
    assert upstream.last.header("cookie") is None
    assert upstream.connections == 1


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/files/a%2Fb%2fc",
        b"/v1/x?q=a+b%20c&d;e=%C3%A9&f=%7e~",
        b"/v1/x?a[]=1|2&b='\"<>",
        b"/v1//double///slash/",
        b"/v1/%zz%",
        b"/openai/deployments/gpt%204/chat/completions?api-version=2024-10-21",
    ],
)
async def test_path_and_query_stay_raw(client, upstream, target) -> None:
    await client.request("GET", target)
    await client.head()
    assert upstream.last.target == target


@pytest.mark.parametrize("target", [b"/v1/../admin", b"/v1/%2e%2E/x", b"/v1/.%2e", b"/./v1"])
async def test_paths_that_lead_elsewhere_are_refused(client, upstream, target) -> None:
    await client.request("GET", target)
    assert (await client.head())[0] == 400
    assert not upstream.exchanges


async def test_redirects_are_relayed(client, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"there", 302, ("Location", "/elsewhere"))

    upstream.handler = answer
    await client.request("GET", b"/v1/x")
    status, headers = await client.head()
    assert (status, value(headers, b"location")) == (302, b"/elsewhere")
    assert len(upstream.exchanges) == 1


@pytest.mark.parametrize(
    ("method", "status", "length"),
    [("HEAD", 200, b"1234"), ("GET", 204, None), ("GET", 304, None)],
)
async def test_replies_without_a_body_end_at_their_head(client, app, upstream, method, status, length) -> None:
    async def answer(exchange: Exchange) -> None:
        framing = () if status == 204 else (("Content-Length", "1234"),)
        await exchange.start(status, *framing, ("ETag", "x"))

    upstream.handler = answer
    await client.request(method, b"/v1/x", ("Connection", "close"))
    got, headers = await client.head()
    assert (got, value(headers, b"content-length"), value(headers, b"etag")) == (status, length, b"x")
    assert await client.rest() == b""
    assert await ended(app) is End.EOF


async def test_no_chunk_waits_for_the_next(client, upstream) -> None:
    turns: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        while data := await turns.get():
            await exchange.chunk(data)
        await exchange.chunk(b"")

    upstream.handler = answer
    await client.request("POST", b"/v1/chat/completions", body=BODY)
    status, headers = await client.head()  # before there is a body at all
    assert status == 200
    assert value(headers, b"content-length") is None
    delays = []
    for turn in range(60):
        data = b'data: {"turn": %d, "text": "\xe6\xb8"}\n\n' % turn if turn % 2 else b": keep-alive\n\n"
        before = asyncio.get_running_loop().time()
        turns.put_nowait(data)
        assert await client.chunk() == data
        delays.append(asyncio.get_running_loop().time() - before)
    turns.put_nowait(b"")
    assert await client.chunk() == b""
    assert statistics.median(delays) < 0.005


async def test_a_large_reply_is_not_gathered(client, app, upstream) -> None:
    """The client stops reading; the upstream is soon held up instead of filling the proxy's memory."""
    written = 0

    async def answer(exchange: Exchange) -> None:
        nonlocal written
        await exchange.start(200, ("Content-Length", str(100 << 20)))
        for _ in range(100):
            await exchange.send(bytes(1 << 20))
            written += 1

    upstream.handler = answer
    await client.request("GET", b"/v1/files/x/content", ("Connection", "close"))
    await client.head()
    for _ in range(100):
        before, _ = written, await asyncio.sleep(0.02)
        if written == before:
            break
    assert written < 40
    size = 0
    while part := await client.reader.read(1 << 20):
        size += len(part)
    assert size == 100 << 20
    assert await ended(app) is End.EOF


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_uploads_stream_while_the_reply_does(client, upstream, framing) -> None:
    async def echo(exchange: Exchange) -> None:
        await exchange.start(200, ("Transfer-Encoding", "chunked"))
        seen = 0
        while seen < 30:
            if len(exchange.body) > seen:
                part = bytes(exchange.body[seen:])
                seen += len(part)
                await exchange.chunk(part)
            await asyncio.sleep(0.001)
        await exchange.chunk(b"")

    upstream.handler, upstream.early = echo, True
    length = b"Content-Length: 30" if framing == "length" else b"Transfer-Encoding: chunked"
    await client.send(b"POST /v1/audio HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + length + b"\r\n\r\n")
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    for turn in range(3):
        part = b"part-----%d" % turn
        await client.send(part if framing == "length" else b"a\r\n%b\r\n" % part)
        if not turn:
            await client.head()
        assert await client.chunk() == part
    if framing == "chunked":
        await client.send(b"0\r\n\r\n")
    assert await client.chunk() == b""
    assert upstream.last.header("content-length") == (b"30" if framing == "length" else None)
    assert upstream.last.chunked == (framing == "chunked")
    assert upstream.last.header("expect") is None


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("size", [100_000, 10 << 20])
async def test_an_answer_that_comes_before_the_upload_ends_is_relayed(client, upstream, size, closes) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(b"no", 401, ("Connection", "close"))
        if closes:
            exchange.close()

    upstream.early, upstream.handler = True, refuse
    await client.send(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    writing = asyncio.ensure_future(client.send(bytes(size)))
    status, _ = await client.head()
    writing.cancel()
    assert status == 401


async def test_a_client_that_reads_slowly_is_not_an_upstream_that_is_silent(upstream, serve) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(bytes(32 << 20))

    upstream.handler = answer
    app = Passthrough(Upstream("fake", upstream.url, idle_s=0.2))
    async with connected(await serve(app)) as client:
        await client.request("GET", b"/v1/files/x/content", ("Connection", "close"))
        await client.head()
        await asyncio.sleep(0.6)
        assert len(await client.rest()) == 32 << 20
    assert await ended(app) is End.EOF


async def _stall(exchange: Exchange) -> None:
    await asyncio.sleep(60)


async def _stall_before_the_first_token(exchange: Exchange) -> None:
    await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
    await asyncio.sleep(60)


async def _stall_in_the_stream(exchange: Exchange) -> None:
    await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
    await exchange.chunk(b"data: {}\n\n")
    await asyncio.sleep(60)


async def _stall_in_a_json_body(exchange: Exchange) -> None:
    await exchange.start(200, ("Content-Length", "100"))
    await exchange.send(b'{"choices": [')
    await asyncio.sleep(60)


@pytest.mark.parametrize("body", [BODY, b""], ids=["POST", "GET"])
@pytest.mark.parametrize(
    ("handler", "begins"),
    [
        pytest.param(_stall, None, id="before the headers"),
        pytest.param(_stall_before_the_first_token, b"", id="before the first token"),
        pytest.param(_stall_in_the_stream, b"data: {}", id="in the stream"),
        pytest.param(_stall_in_a_json_body, b'{"choices": [', id="in a body with a length"),
    ],
)
async def test_a_client_that_leaves_takes_its_upstream_request_with_it(
    app, client, upstream, caplog, handler, begins, body
) -> None:
    upstream.handler = handler
    await client.request("POST" if body else "GET", b"/v1/chat/completions", body=body)
    exchange = await upstream.arrival()
    await exchange.received.wait()
    if begins is not None:
        await client.head()
        if begins:
            await client.reader.readuntil(begins)
    left_at = asyncio.get_running_loop().time()
    client.close()
    async with asyncio.timeout(2):
        await exchange.gone.wait()
    assert exchange.gone_at - left_at < 0.25
    assert await ended(app) is End.CLIENT_GONE
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_client_that_leaves_in_its_upload_takes_its_upstream_request_with_it(app, client, upstream) -> None:
    upstream.early, upstream.handler = True, _stall
    await client.send(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nbeginning")
    exchange = await upstream.arrival()
    client.close()
    async with asyncio.timeout(2):
        await exchange.gone.wait()
    assert await ended(app) is End.CLIENT_GONE
    assert not exchange.received.is_set()


async def _reset_at_once(exchange: Exchange) -> None:
    exchange.reset()


async def _close_at_once(exchange: Exchange) -> None:
    exchange.close()


async def _garbage(exchange: Exchange) -> None:
    await exchange.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    exchange.close()


@pytest.mark.parametrize("handler", [_reset_at_once, _close_at_once, _garbage])
async def test_an_upstream_that_breaks_before_its_head_is_a_502(app, client, upstream, handler) -> None:
    upstream.handler = handler
    await client.request("POST", b"/v1/x", ("Connection", "close"), body=BODY)
    status, headers = await client.head()
    assert (status, value(headers, b"content-type")) == (502, b"application/json")
    assert b'"code":"upstream_broken"' in await client.rest()
    assert await ended(app) is End.UPSTREAM_ERROR


async def _reset_in_the_stream(exchange: Exchange) -> None:
    await exchange.start(200, ("Transfer-Encoding", "chunked"))
    await exchange.chunk(b"first")
    await asyncio.sleep(0.05)
    exchange.reset()


async def _close_in_the_stream(exchange: Exchange) -> None:
    await exchange.start(200, ("Transfer-Encoding", "chunked"))
    await exchange.chunk(b"first")
    exchange.close()


async def _half_a_chunk(exchange: Exchange) -> None:
    await exchange.start(200, ("Transfer-Encoding", "chunked"))
    await exchange.send(b"5\r\nfirst\r\nff\r\nhalf")
    exchange.close()


async def _less_than_promised(exchange: Exchange) -> None:
    await exchange.start(200, ("Content-Length", "100"))
    await exchange.send(b"first")
    exchange.close()


@pytest.mark.parametrize("handler", [_reset_in_the_stream, _close_in_the_stream, _half_a_chunk, _less_than_promised])
async def test_a_reply_that_breaks_off_reaches_the_client_as_broken(app, client, upstream, caplog, handler) -> None:
    upstream.handler = handler
    await client.request("POST", b"/v1/x", body=BODY)
    _, headers = await client.head()
    rest = await client.rest()  # the connection ends
    assert b"first" in rest
    if value(headers, b"transfer-encoding"):
        assert not rest.endswith(b"0\r\n\r\n")
    else:
        assert len(rest) < 100
    assert await ended(app) is End.UPSTREAM_ERROR
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_reply_framed_by_the_end_of_the_connection_is_whole(app, client, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it")
        exchange.close()

    upstream.handler = answer
    await client.request("GET", b"/v1/x")
    await client.head()
    assert await client.chunk() == b"all of it"
    assert await client.chunk() == b""
    assert await ended(app) is End.EOF


async def test_silence_before_the_head_is_a_504(upstream, serve) -> None:
    app = Passthrough(Upstream("slow", upstream.url, idle_s=0.1))
    upstream.handler = _stall
    async with connected(await serve(app)) as client:
        await client.request("POST", b"/v1/x", ("Connection", "close"), ("Authorization", "Bearer sk-1"), body=BODY)
        status, _ = await client.head()
        body = await client.rest()
    assert status == 504
    assert b'"code":"upstream_timeout"' in body
    assert b"sk-1" not in body
    assert await ended(app) is End.UPSTREAM_TIMEOUT


async def test_silence_in_the_stream_breaks_the_transfer(upstream, serve) -> None:
    app = Passthrough(Upstream("slow", upstream.url, idle_s=0.1))
    upstream.handler = _stall_in_the_stream
    async with connected(await serve(app)) as client:
        await client.request("POST", b"/v1/x", body=BODY)
        await client.head()
        assert not (await client.rest()).endswith(b"0\r\n\r\n")
    assert await ended(app) is End.UPSTREAM_TIMEOUT


async def test_an_upstream_that_takes_no_more_of_an_upload_is_a_504(upstream, serve) -> None:
    class Deaf(FakeUpstream):
        async def _body(self, exchange: Exchange) -> None:
            await asyncio.sleep(60)

    upstream.__class__, upstream.early = Deaf, True
    upstream.handler = _stall
    app = Passthrough(Upstream("deaf", upstream.url, idle_s=0.2))
    async with connected(await serve(app)) as client:
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        writing = asyncio.ensure_future(client.send(bytes(64 << 20)))
        status, _ = await client.head()
        writing.cancel()
    assert status == 504
    assert await ended(app) is End.UPSTREAM_TIMEOUT


@pytest.mark.parametrize("ws", ["auto", "none"])
async def test_websockets_get_a_501(upstream, serve, ws, caplog) -> None:
    app = Passthrough(Upstream("fake", upstream.url))
    async with connected(await serve(app, ws=ws)) as client:
        key = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), key]
        await client.request("GET", b"/v1/realtime?model=x", *upgrade)
        status, headers = await client.head()
        body = await client.reader.readexactly(int(value(headers, b"content-length") or 0))
    assert status == 501
    assert b"websocket_unsupported" in body
    assert not upstream.exchanges


async def test_other_upgrades_are_ignored(client, upstream) -> None:
    upgrade = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]
    await client.request("GET", b"/v1/models", *upgrade)
    assert (await client.head())[0] == 200
    assert [name for name, _ in upstream.last.headers] == [b"host"]
