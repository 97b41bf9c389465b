import pytest

from proxy.http import headers


def raw(*pairs: str) -> list[tuple[bytes, bytes]]:
    return [tuple(part.encode() for part in pair.split(": ", 1)) for pair in pairs]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "length", "kept"),
    [
        pytest.param(
            ["accept: a", "x-unknown: 1", "x-unknown: 2"],
            None,
            ["accept: a", "x-unknown: 1", "x-unknown: 2"],
            id="end to end, in order",
        ),
        pytest.param(
            ["openai-organization: o", "traceparent: t", "cookie: c"],
            None,
            ["openai-organization: o", "traceparent: t", "cookie: c"],
            id="well known",
        ),
        pytest.param(
            ["host: a", "expect: 100-continue", "te: trailers", "trailer: x", "upgrade: h2c"],
            None,
            [],
            id="of this connection",
        ),
        pytest.param(
            ["connection: close, X-One", "x-one: 1", "x-two: 2", "keep-alive: 5"], None, ["x-two: 2"], id="listed"
        ),
        pytest.param(
            ["connection: authorization, content-type", "authorization: a", "content-type: b"],
            None,
            ["authorization: a", "content-type: b"],
            id="wrongly listed",
        ),
        pytest.param(["proxy-authorization: p", "proxy-connection: keep-alive"], None, [], id="of the proxy"),
        pytest.param(
            ["x-trimtab-session: s", "x-trimtab-bypass: 1", "x-trimtabs: t"], None, ["x-trimtabs: t"], id="own"
        ),
        pytest.param(
            ["content-length: 5", "accept: a"], None, ["content-length: 5", "accept: a"], id="streamed with a length"
        ),
        pytest.param(["transfer-encoding: chunked", "content-length: 5"], None, [], id="streamed in chunks"),
        pytest.param(
            ["content-length: 5", "accept: a"], 7, ["content-length: 7", "accept: a"], id="whole, in its place"
        ),
        pytest.param(
            ["transfer-encoding: chunked", "accept: a"], 7, ["accept: a", "content-length: 7"], id="whole, was chunked"
        ),
        pytest.param(["content-length: 5", "content-length: 5"], 5, ["content-length: 5"], id="one length only"),
        pytest.param(["accept: a"], 0, ["accept: a"], id="no body"),
    ],
)
def test_fields_for_an_upstream(given, length, kept) -> None:
    assert headers.for_upstream(raw(*given), length=length) == raw(*kept)


def test_a_changed_body_is_no_longer_described_as_the_clients() -> None:
    given = raw("content-encoding: gzip", "content-digest: sha-256=:x:", "content-md5: y", "content-type: json")
    assert headers.for_upstream(given, length=3, changed=True) == raw("content-type: json", "content-length: 3")
    assert headers.for_upstream(given, length=3) == [*given, (b"content-length", b"3")]


@pytest.mark.parametrize(
    ("given", "status", "kept"),
    [
        pytest.param(["set-cookie: a", "set-cookie: b"], 200, ["set-cookie: a", "set-cookie: b"], id="duplicates"),
        pytest.param(
            ["retry-after: 1", "x-ratelimit-limit-requests: 9", "x-request-id: r"],
            429,
            ["retry-after: 1", "x-ratelimit-limit-requests: 9", "x-request-id: r"],
            id="rate limits",
        ),
        pytest.param(["transfer-encoding: chunked", "content-length: 4"], 200, [], id="chunks win over a length"),
        pytest.param(["content-length: 4"], 304, [], id="304"),
        pytest.param(
            ["content-length: 4", "content-encoding: br"],
            200,
            ["content-length: 4", "content-encoding: br"],
            id="coding",
        ),
        pytest.param(["connection: x-hop", "x-hop: 1", "trailer: t"], 200, [], id="listed"),
    ],
)
def test_fields_for_a_client(given, status, kept) -> None:
    assert headers.for_client(raw(*given), status=status) == raw(*kept)


def test_control_characters_do_not_reach_the_client() -> None:
    given = [(b"x-a", b"a\x01b\x7f"), (b"x-b", b"\xe9\tb")]
    assert headers.for_client(given) == [(b"x-a", b"a b "), (b"x-b", b"\xe9\tb")]


def test_extra_fields_replace_their_namesakes() -> None:
    extra = raw("x-trimtab-action: pass")
    assert headers.for_client(raw("x-trimtab-action: trimmed", "a: b"), extra=extra) == [*raw("a: b"), *extra]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["content-length: 3"], True),
        (["content-length: 0"], False),
        (["transfer-encoding: chunked"], True),
        ([], False),
    ],
)
def test_whether_a_body_follows(given, expected) -> None:
    assert headers.has_body(raw(*given)) is expected


def test_values_are_found_by_name() -> None:
    given = raw("accept-encoding: GZIP,, br", "accept-encoding: zstd", "upgrade: WebSocket")
    assert headers.tokens(given, b"accept-encoding") == [b"gzip", b"br", b"zstd"]
    assert headers.text(given, b"accept-encoding") == "GZIP,, br, zstd"
    assert headers.first(given, b"accept-encoding") == b"GZIP,, br"
    assert headers.first(given, b"none") is None
    assert headers.asks_websocket(given)
