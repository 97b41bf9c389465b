"""Group D, framing and header fields, both ways (D14, D19, E13)."""

import pytest

from tests.fakes.server import connected
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, dialogue, system, user
from tests.proxy.proxied import Start

SMALL = "defaults: {window: 1000, reserve_output: 0, policy: fifo}"


@pytest.mark.parametrize("status", [200, 400, 429, 500, 503])
@pytest.mark.parametrize("framing", ["length", "chunked", "both", "close"])
async def test_an_answer_is_framed_once_and_keeps_its_fields(
    start: Start, upstream: FakeUpstream, framing: str, status: int
) -> None:
    """D14, E13: end-to-end fields pass, those of the connection do not, and no length contradicts the chunks."""
    kept = [
        ("x-request-id", "r1"),
        ("openai-organization", "o"),
        ("retry-after-ms", "70"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]
    kept += [("x-new", "1"), ("x-new", "2"), ("traceparent", "00-1-2-03"), ("openai-processing-ms", "12")]
    own = [("Connection", "close, x-private"), ("x-private", "secret"), ("Keep-Alive", "timeout=5"), ("Trailer", "x-t")]
    content = b'{"choices": [], "error": null}'

    async def handler(exchange: Exchange) -> None:
        framed = [("Content-Length", str(len(content)))] if framing in ("length", "both") else []
        framed += [("Transfer-Encoding", "chunked")] if framing in ("chunked", "both") else []
        await exchange.start(status, *kept, *own, *framed)
        if framing in ("chunked", "both"):
            await exchange.chunk(content)
            await exchange.chunk(b"")
        else:
            await exchange.send(content)
        exchange.close()

    upstream.handler = handler
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", b"/v1/chat/completions", ("Connection", "close"), body=body([user("q")]))
        got, fields = await raw.head()
        names = [name.lower() for name, _ in fields]
        if framing == "both" and got == 502:  # the client library refuses what is framed twice: so may we
            return
        assert got == status
        assert [
            f"{n.decode().lower()}:{v.decode()}" for n, v in fields if n.lower() in {k.encode() for k, _ in kept}
        ] == [f"{n}:{v}" for n, v in kept]
        assert {b"x-private", b"keep-alive", b"trailer"}.isdisjoint(names)
        assert names.count(b"content-length") + names.count(b"transfer-encoding") == 1
        rest = await raw.rest()
    assert content in rest
    assert len(upstream.exchanges) == 1, "neither 429 nor 5xx is tried again"


async def test_request_fields_pass_and_those_of_the_connection_do_not(start: Start, upstream: FakeUpstream) -> None:
    """D14: for a trimmed request that came in chunks, the length is that of what is sent."""
    content = body([system(), *dialogue(20)[1:]], n=3, logprobs=True, top_logprobs=5)
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: proxy.test\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
            b"TE: trailers\r\nProxy-Authorization: Basic eA==\r\nOpenAI-Organization: o\r\ntraceparent: 00-1\r\n"
            b"X-Stainless-Lang: python\r\nIdempotency-Key: k\r\nAuthorization: Bearer sk-1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for at in range(0, len(content), 700):
            piece = content[at : at + 700]
            await raw.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await raw.send(b"0\r\n\r\n")
        status, fields = await raw.head()
    assert status == 200
    assert (b"x-trimtab-action", b"trimmed") in fields
    got = upstream.last
    assert got.header("content-length") == str(len(got.body)).encode()
    assert got.header("transfer-encoding") is None
    assert got.header("host") == f"127.0.0.1:{upstream.port}".encode()
    for name in ("openai-organization", "traceparent", "x-stainless-lang", "idempotency-key", "authorization"):
        assert got.header(name)
    for name in ("x-hop", "te", "proxy-authorization", "x-trimtab-session"):
        assert got.header(name) is None
    assert (got.json["n"], got.json["logprobs"], got.json["top_logprobs"]) == (3, True, 5)


@pytest.mark.parametrize("wish", ["h2c", "TLS/1.3", "websocket"])
async def test_a_request_that_wishes_for_another_protocol_is_trimmed_like_any_other(
    start: Start, upstream: FakeUpstream, wish: str
) -> None:
    """Java's client wishes for h2c with each request; a POST is no WebSocket's beginning, whatever it says."""
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        fields = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", wish), ("HTTP2-Settings", "AAMA")]
        for _ in range(2):
            await raw.request("POST", b"/v1/chat/completions", *fields, body=body(dialogue(20)))
            status, got = await raw.head()
            await raw.reader.readexactly(int(dict(got)[b"content-length"]))
            assert status == 200
            assert (b"x-trimtab-action", b"trimmed") in got

    assert [exchange.json["messages"][-1] for exchange in upstream.exchanges] == [dialogue(20)[-1]] * 2
    assert upstream.last.header("upgrade") is upstream.last.header("http2-settings") is None


@pytest.mark.parametrize("target", [b"/v1/models", b"/v1/chat/completions"])
async def test_trace_shows_nobody_the_upstreams_key(start: Start, upstream: FakeUpstream, target: bytes) -> None:
    """Who answers it sends back the request as it came, its `authorization` with it."""
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("TRACE", target, ("Connection", "close"))
        status, _ = await raw.head()
        assert b'"method_not_relayed"' in await raw.rest()

    assert status == 405
    assert upstream.exchanges == []
