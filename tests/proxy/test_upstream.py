"""Where requests go, with whose key, and what the ways of failing are called."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fakes.upstream
import pytest
from fakes.upstream import Exchange, FakeUpstream

from proxy.errors import ConfigError, UpstreamError
from proxy.upstream import Reply, Upstream


@asynccontextmanager
async def opened(*args, **options) -> AsyncIterator[Upstream]:
    upstream = Upstream(*args, **{"connect_s": 2, "idle_s": 2, **options})
    try:
        yield upstream
    finally:
        await upstream.aclose()


async def body_of(reply: Reply) -> bytes:
    try:
        return b"".join([chunk async for chunk in reply])
    finally:
        await reply.aclose()


# A certificate for 127.0.0.1 that signs itself, and its key.
BUNDLE = str(Path(fakes.upstream.__file__).parent / "localhost.pem")
CLIENT_KEY = (b"authorization", b"Bearer sk-client")
OWN_KEY = (b"authorization", b"Bearer sk-own")


@pytest.mark.parametrize(
    ("api_key", "target", "sent", "expected"),
    [
        pytest.param(None, b"/v1/x", [CLIENT_KEY], [CLIENT_KEY], id="the client's goes through"),
        pytest.param(None, b"/v1/x", [(b"api-key", b"c")], [(b"api-key", b"c")], id="the client's, Azure"),
        pytest.param("sk-own", b"/v1/x", [CLIENT_KEY], [OWN_KEY], id="the upstream's own"),
        pytest.param("sk-own", b"/v1/x", [], [OWN_KEY], id="the upstream's own alone"),
        pytest.param("sk-own", b"/v1/x", [CLIENT_KEY, (b"x-api-key", b"c")], [OWN_KEY], id="no other is left"),
        pytest.param("sk-own", b"/openai/deployments/d", [CLIENT_KEY], [(b"api-key", b"sk-own")], id="Azure path"),
        pytest.param("sk-own", b"/v1/x", [(b"api-key", b"c")], [(b"api-key", b"sk-own")], id="Azure client"),
    ],
)
async def test_credentials(upstream: FakeUpstream, api_key, target, sent, expected) -> None:
    async with opened("fake", upstream.url, api_key) as client:
        await body_of(await client.send("GET", target, sent))
    assert [pair for pair in upstream.last.headers if pair[0] != b"host"] == expected


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        ("", b"/v1/chat/completions?a=%2F", b"/v1/chat/completions?a=%2F"),
        ("/v1", b"/v1/chat/completions", b"/v1/chat/completions"),
        ("/v1/", b"/chat/completions", b"/v1/chat/completions"),
        ("/a%2Fb/v1", b"/v1/x", b"/a%2Fb/v1/x"),
        ("/v1", "/v1/é?q=ü".encode(), "/v1/é?q=ü".encode()),
    ],
)
async def test_targets_are_joined_to_the_base_url(upstream: FakeUpstream, path, target, expected) -> None:
    async with opened("fake", upstream.url + path) as client:
        await body_of(await client.send("GET", target, []))
    assert upstream.last.target == expected


async def test_a_changed_body_gets_its_own_length_and_no_coding(upstream: FakeUpstream) -> None:
    fields = [(b"content-encoding", b"gzip"), (b"content-length", b"999"), (b"content-type", b"application/json")]
    async with opened("fake", upstream.url) as client:
        reply = await client.send("POST", b"/v1/x", fields, b'{"a": 1}', changed=True)
        assert json.loads(await body_of(reply))["choices"]
    assert upstream.last.headers[1:] == [(b"content-length", b"8"), (b"content-type", b"application/json")]
    assert upstream.last.json == {"a": 1}


async def test_connections_are_used_again(upstream: FakeUpstream) -> None:
    async with opened("fake", upstream.url) as client:
        for _ in range(3):
            await body_of(await client.send("POST", b"/v1/x", [], b"{}"))
    assert upstream.connections == 1


async def test_a_reply_left_in_the_middle_takes_its_connection_with_it(upstream: FakeUpstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.start(200, ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b"a")
        await asyncio.sleep(60)

    upstream.handler = answer
    async with opened("fake", upstream.url) as client:
        reply = await client.send("GET", b"/v1/x", [])
        assert await anext(reply) == b"a"
        await reply.aclose()
        async with asyncio.timeout(1):
            await upstream.last.gone.wait()


async def pieces() -> AsyncIterator[bytes]:
    yield b"{}"


async def test_connections_are_limited_whichever_way_a_request_takes(upstream: FakeUpstream) -> None:
    async with opened("fake", upstream.url, connections=1, connect_s=0.1) as client:
        first = await client.send("POST", b"/v1/x", [], b"{}")
        for body in (b"{}", pieces()):
            with pytest.raises(UpstreamError, match="no connection in time"):
                await client.send("POST", b"/v1/x", [(b"content-length", b"2")], body)
        waiting = asyncio.create_task(client.send("POST", b"/v1/x", [(b"content-length", b"2")], pieces()))
        await body_of(first)
        await first.aclose()  # a second time: it gives back one connection, not two
        await body_of(await waiting)
        await body_of(await client.send("POST", b"/v1/x", [], b"{}"))
    assert len(upstream.exchanges) == 3


async def test_a_key_with_a_line_break_is_not_sent(upstream: FakeUpstream) -> None:
    async with opened("fake", upstream.url, "sk-own\nx-more: 1", connections=1) as client:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"'fake'.* line break") as caught:
                await client.send("POST", b"/v1/x", [], b"{}")
    assert "sk-own" not in str(caught.value)
    assert not upstream.exchanges


async def test_a_reply_can_be_looked_into_and_is_whole_afterwards(upstream: FakeUpstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.start(400, ("Transfer-Encoding", "chunked"))
        for part in (b"ab", b"cd", b"ef"):
            await exchange.chunk(part)
            await asyncio.sleep(0.01)
        await exchange.chunk(b"")

    upstream.handler = answer
    async with opened("fake", upstream.url) as client:
        reply = await client.send("GET", b"/v1/x", [])
        assert (await reply.peek(3)).startswith(b"abcd"[:4])
        assert await reply.peek(1000) == b"abcdef"
        assert await body_of(reply) == b"abcdef"


@pytest.mark.parametrize("status", [101, 600, 999])
async def test_a_status_that_makes_no_sense_is_an_error(upstream: FakeUpstream, status) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"", status)

    upstream.handler = answer
    async with opened("fake", upstream.url) as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send("GET", b"/v1/x", [])
    assert caught.value.code == "upstream_broken"


async def test_interim_responses_are_passed_over(upstream: FakeUpstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await exchange.answer(b"ok")

    upstream.handler = answer
    async with opened("fake", upstream.url) as client:
        reply = await client.send("GET", b"/v1/x", [])
        assert (reply.status, await body_of(reply)) == (200, b"ok")


async def test_long_header_fields_are_taken(upstream: FakeUpstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(b"ok", 200, ("X-Long", "x" * 30_000), *((f"X-{n}", "y") for n in range(300)))

    upstream.handler = answer
    async with opened("fake", upstream.url) as client:
        reply = await client.send("GET", b"/v1/x", [])
        await body_of(reply)
    assert (b"x-long", b"x" * 30_000) in reply.headers


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def failure(url: str, **options) -> UpstreamError:
    async with opened("name", url, "sk-secret", **options) as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send("POST", b"/v1/x?key=secret", [], b"secret")
    assert "secret" not in caught.value.message
    assert "'name'" in caught.value.message
    return caught.value


async def test_a_refused_connection_is_unreachable() -> None:
    error = await failure(f"http://127.0.0.1:{free_port()}/v1")
    assert (error.code, "connection refused" in error.message) == ("upstream_unreachable", True)


async def test_a_name_that_does_not_resolve_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    error = await failure("http://nowhere.invalid/v1")
    assert (error.code, "name not resolved" in error.message) == ("upstream_unreachable", True)


async def test_a_server_without_tls_is_unreachable_over_https() -> None:
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        left.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        error = await failure(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        async with asyncio.timeout(2):
            await left.wait()
    assert error.code == "upstream_unreachable"
    assert "TLS" in error.message


async def test_a_connection_that_takes_too_long_is_a_timeout() -> None:
    with socket.socket() as sock:  # accepts nothing once its queue is full
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        waiting = [await _connecting(port) for _ in range(3)]
        error = await failure(f"http://127.0.0.1:{port}", connect_s=0.2)
        for other in waiting:
            other.close()
    assert error.code == "upstream_timeout"


async def _connecting(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", port))
    return sock


async def test_a_certificate_is_verified(upstream: FakeUpstream) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(BUNDLE)
    server = await asyncio.start_server(upstream._connection, "127.0.0.1", 0, ssl=server_side)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        error = await failure(url)
        assert error.code == "upstream_unreachable"
        assert "certificate not accepted" in error.message
        async with opened("name", url, ca_bundle=BUNDLE) as client:
            reply = await client.send("GET", b"/v1/models", [])
            assert json.loads(await body_of(reply))
    finally:
        server.close()


async def test_the_environments_proxy_is_used(upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", upstream.url.replace("http://", "http://user:pass@"))
    monkeypatch.setenv("no_proxy", "local.test")
    async with opened("far", "http://far.test:81/v1") as client:
        await body_of(await client.send("GET", b"/v1/a%2Fb?x=%20", []))
    assert upstream.last.target == b"http://far.test:81/v1/a%2Fb?x=%20"
    assert upstream.last.header("host") == b"far.test:81"
    assert upstream.last.header("proxy-authorization") == b"Basic dXNlcjpwYXNz"


async def test_https_goes_through_the_environments_proxy_in_a_tunnel(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        near_reader, near_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, near_writer), pipe(near_reader, writer))

    async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
        sink.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(BUNDLE)
    server = await asyncio.start_server(upstream._connection, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    monkeypatch.setenv("https_proxy", f"http://user:pass@127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    async with opened("far", f"https://127.0.0.1:{port}/v1", "sk-own", ca_bundle=BUNDLE) as client:
        assert await body_of(await client.send("POST", b"/v1/x", [], b"{}"))
    proxy.close()
    server.close()
    assert asked[0].startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % port)
    assert b"Basic dXNlcjpwYXNz" in asked[0]
    assert b"sk-own" not in asked[0]
    assert upstream.last.header("proxy-authorization") is None
    assert upstream.last.header("authorization") == b"Bearer sk-own"


async def test_hosts_without_proxy_are_reached_directly(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with opened("near", upstream.url) as client:
        assert await body_of(await client.send("GET", b"/v1/x", []))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("api.openai.com/v1", "must be an http or https URL with a host, got 'api.openai.com/v1'"),
        ("ftp://h/v1", "must be an http or https URL"),
        ("https:///v1", "must be an http or https URL"),
        ("https://h:port/v1", "must be a URL like"),
        ("https://user:sk-secret@h/v1", "must not carry credentials"),
        ("https://h/v1?api-version=1", "must end with its path"),
        ("https://h/v1#x", "must end with its path"),
    ],
)
def test_base_urls_that_cannot_be_used(url, problem) -> None:
    with pytest.raises(ConfigError) as caught:
        Upstream("mine", url)
    assert str(caught.value).startswith(f"upstreams.mine.base_url: {problem}")
    assert "secret" not in str(caught.value)


def test_a_ca_bundle_that_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match=r"upstreams\.mine\.ca_bundle: .* got '/no/such'"):
        Upstream("mine", "https://h", ca_bundle="/no/such")
