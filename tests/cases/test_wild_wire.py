"""Requests and answers as they come in the wild, through real sockets: bytes, framing, codings, odd ends."""

import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fakes.server import connected
from tests.fakes.upstream import Exchange, FakeUpstream, completion
from tests.proxy.dialogues import body, dialogue, system, user
from tests.proxy.proxied import Records, Start, post

LARGE, SMALL = "defaults: {window: 128000}", "defaults: {window: 600, reserve_output: 0, policy: fifo}"
PATH = b"/v1/chat/completions"
HELLO = body([user("hello")])
JSON = ("Content-Type", "application/json")

BODIES: dict[str, bytes] = {
    "numbers of any kind": b'{"model":"gpt-4o","seed":12345678901234567890123,"top_p":1.0e-0,"x":-0.0,"y":1E400,'
    b'"messages":[{"role":"user","content":"hi"}]}',
    "escapes of any kind": b'{"model":"gpt-4o","messages":[{"role":"user",'
    b'"content":"a\\/b \\u00e9 \\u2028 \xc3\xa9 \\ud83d\\ude00"}]}',
    "messages first": b'{"messages":[{"content":"hi","role":"user"}],"model":"gpt-4o"}',
    "messages within messages": b'{"x":{"messages":[1]},"model":"gpt-4o",'
    b'"messages":[{"role":"user","content":"hi","messages":[]}]}',
    "a mark of byte order": b"\xef\xbb\xbf" + HELLO,
    "space around it": b" \r\n\t" + HELLO + b"\n\n",
    "UTF-16": HELLO.decode().encode("utf-16"),
    "not a number": b'{"model":"gpt-4o","temperature":NaN,"messages":[{"role":"user","content":"hi"}]}',
    "a key twice in a message": b'{"model":"gpt-4o","messages":[{"role":"user","content":"a","content":"b"}]}',
    "bytes that are no UTF-8": b'{"model":"gpt-4o","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "a list": b'[{"role":"user","content":"hi"}]',
    "two values": HELLO + HELLO,
    "nothing": b"",
}


@pytest.mark.parametrize("content", BODIES)
async def test_what_is_not_trimmed_leaves_as_it_came(start: Start, upstream: FakeUpstream, content: str) -> None:
    response = await post(await start(SMALL), BODIES[content])

    assert response.status_code == 200
    assert bytes(upstream.last.body) == BODIES[content]


async def test_what_stands_beside_trimmed_messages_keeps_its_bytes(start: Start, upstream: FakeUpstream) -> None:
    head = b'{"seed": 12345678901234567890123 ,"x":1.10,"logit_bias":{"50256":-100},"note":"\\u00e9\\/","messages": '
    tail = b' ,"model":"gpt-4o","stop":["\\n"] , "metadata":{"a":"b","a":"c"}}'
    content = head + json.dumps(dialogue(20)).encode() + tail

    response = await post(await start(SMALL), content)

    assert response.headers["x-trimtab-action"] == "trimmed"
    assert upstream.last.body.startswith(head)
    assert upstream.last.body.endswith(tail)


async def test_types_of_content_are_not_asked_for(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    for kind in ("text/plain", "application/json; charset=utf-8", "application/vnd.api+json", "", "nonsense"):
        response = await post(client, body(dialogue(20)), **{"content-type": kind})
        assert response.headers["x-trimtab-action"] == "trimmed", kind
        assert (upstream.last.header("content-type") or b"") == kind.encode()


REQUESTS: dict[str, list[bytes]] = {
    "a body in odd chunks, with extensions and a trailer": [
        b"POST " + PATH + b" HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        b"%x;ext=1\r\n%b\r\n" % (5, HELLO[:5]),
        b"%X\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(HELLO) - 5, HELLO[5:]),
    ],
    "HTTP/1.0": [b"POST " + PATH + b" HTTP/1.0\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(HELLO) + HELLO],
    "an absolute target": [
        b"POST http://a" + PATH + b" HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(HELLO) + HELLO
    ],
    "byte by byte": [
        bytes([byte])
        for byte in b"POST " + PATH + b" HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(HELLO) + HELLO
    ],
    "names in capitals": [b"POST " + PATH + b" HTTP/1.1\r\nHOST: a\r\nCONTENT-LENGTH: %d\r\n\r\n" % len(HELLO) + HELLO],
}


@pytest.mark.parametrize("request_", REQUESTS)
async def test_requests_are_read_however_they_are_framed(start: Start, upstream: FakeUpstream, request_: str) -> None:
    client = await start(LARGE)

    async with connected(str(client.base_url).rstrip("/")) as raw:
        for piece in REQUESTS[request_]:
            await raw.send(piece)
        status, _ = await raw.head()

    assert status == 200
    assert bytes(upstream.last.body) == HELLO


async def test_a_client_that_waits_for_leave_gets_it(start: Start, upstream: FakeUpstream) -> None:
    client = await start(LARGE)

    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", PATH, ("Expect", "100-continue"), ("Content-Length", str(len(HELLO))))
        assert (await raw.head())[0] == 100
        await raw.send(HELLO)
        assert (await raw.head())[0] == 200

    assert upstream.last.header("expect") is None
    assert bytes(upstream.last.body) == HELLO


async def test_requests_one_behind_the_other_are_answered_in_order(start: Start, upstream: FakeUpstream) -> None:
    client = await start(LARGE)
    bodies = [body([user(f"number {n}")]) for n in range(3)]

    async def named(exchange: Exchange) -> None:
        await exchange.answer(exchange.json["messages"][0]["content"].encode(), 200, JSON)

    upstream.handler = named
    async with connected(str(client.base_url).rstrip("/")) as raw:
        for each in bodies:
            await raw.request("POST", PATH, body=each)
        got = []
        for _ in bodies:
            _, fields = await raw.head()
            got.append(await raw.reader.readexactly(int(dict(fields)[b"content-length"])))

    assert got == [b"number 0", b"number 1", b"number 2"]


USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c", "choices": [], **fields}).encode() + b"\n\n"


SAID = event(choices=[{"index": 0, "delta": {"content": "Yes"}, "finish_reason": "stop"}])
STREAMS: dict[str, bytes] = {
    "usage at the end, without choices": SAID + event(usage=USAGE) + b"data: [DONE]\n\n",
    "usage in every event": event(usage=USAGE)
    + event(usage=USAGE, choices=[])
    + SAID.replace(b"}]}", b'}],"usage":null}')
    + event(usage=USAGE)
    + b"data: [DONE]\n\n",
    "no space behind the colon": (SAID + event(usage=USAGE) + b"data: [DONE]\n\n").replace(b"data: ", b"data:"),
    "an event in two lines": b'data: {"choices":[],\ndata: "usage":'
    + json.dumps(USAGE).encode()
    + b"}\n\ndata: [DONE]\n\n",
    "returns alone": (SAID + event(usage=USAGE) + b"data: [DONE]\n\n").replace(b"\n", b"\r"),
}


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("stream", STREAMS)
async def test_usage_is_found_in_streams_and_their_bytes_are_left(
    start: Start, upstream: FakeUpstream, records: Records, stream: str, coding: str
) -> None:
    sent = gzip.compress(STREAMS[stream]) if coding == "gzip" else STREAMS[stream]

    async def handler(exchange: Exchange) -> None:
        await exchange.start(
            200, ("Content-Type", "text/event-stream"), ("Content-Encoding", coding), ("Transfer-Encoding", "chunked")
        )
        for at in range(0, len(sent), 7):
            await exchange.chunk(sent[at : at + 7])
        await exchange.chunk(b"")

    upstream.handler = handler
    client = await start(LARGE)

    async with client.stream("POST", PATH.decode(), content=HELLO) as response:
        got = b"".join([piece async for piece in response.aiter_raw()])

    assert got == sent
    assert response.headers["content-encoding"] == coding
    (record,) = await records.get()
    assert (record["usage"]["prompt_tokens"], record["stream_end"]) == (9, "done")


async def redirected(exchange: Exchange) -> None:
    await exchange.answer(b"", 307, ("Location", "http://127.0.0.1:9/elsewhere"))


async def cookies(exchange: Exchange) -> None:
    await exchange.answer(b"{}", 200, JSON, ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Odd", "caf\xe9"))


async def no_content(exchange: Exchange) -> None:
    await exchange.start(204)


async def until_closed(exchange: Exchange) -> None:
    await exchange.start(200, JSON, ("Connection", "close"))
    await exchange.send(b'{"choices":[]}')
    exchange.close()


async def hints_first(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    await completion(exchange)


ANSWERS: dict[str, tuple[Callable[[Exchange], Awaitable[None]], int, bytes | None]] = {
    "a redirect": (redirected, 307, b""),
    "several cookies": (cookies, 200, b"{}"),
    "no content": (no_content, 204, b""),
    "an end by closing": (until_closed, 200, b'{"choices":[]}'),
    "early hints": (hints_first, 200, None),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_answers_are_handed_on_as_they_are(start: Start, upstream: FakeUpstream, answer: str) -> None:
    upstream.handler, status, content = ANSWERS[answer]

    response = await post(await start(LARGE), HELLO, authorization="Bearer sk-1")

    assert response.status_code == status
    assert content is None or response.content == content
    assert len(upstream.exchanges) == 1
    if answer == "several cookies":
        assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert (b"x-odd", b"caf\xe9") in [(name.lower(), value) for name, value in response.headers.raw]


@pytest.mark.parametrize(
    ("target", "trimmed"),
    [
        ("/v1/chat/completions?api-version=2024-10-21&x=%2F", True),
        ("/v1/chat/completions/", False),
        ("//v1/chat/completions", True),
        ("/openai/deployments/gpt-4o/chat/completions?api-version=1", True),
        ("/V1/Chat/Completions", False),
        ("/v1/chat/completions;v=1", False),
    ],
)
async def test_targets_reach_the_upstream_as_they_were_written(
    start: Start, upstream: FakeUpstream, target: str, trimmed: bool
) -> None:
    """What is no chat path to the letter is passed through unread."""
    client = await start(SMALL)
    content = body(dialogue(20))

    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", target.encode(), ("Content-Type", "application/json"), body=content)
        status, fields = await raw.head()

    assert status == 200
    assert (dict(fields).get(b"x-trimtab-action") == b"trimmed") is trimmed
    assert (len(upstream.last.body) < len(content)) is trimmed
    assert upstream.last.target.endswith(target.removeprefix("/v1").lstrip("/").encode())


async def test_a_preflight_is_the_upstreams_to_answer(start: Start, upstream: FakeUpstream) -> None:
    client = await start(LARGE)

    response = await client.options(
        PATH.decode(), headers={"origin": "http://a", "access-control-request-method": "POST"}
    )

    assert response.status_code == 200
    assert upstream.last.method == "OPTIONS"
    assert upstream.last.header("origin") == b"http://a"


async def test_a_connection_that_the_upstream_gave_up_is_not_used_again(start: Start, upstream: FakeUpstream) -> None:
    """Answers that keep the connection, which is closed behind them: the next request must not meet its end."""

    async def closing(exchange: Exchange) -> None:
        await completion(exchange)
        exchange.close()

    upstream.handler = closing
    client = await start(LARGE)

    answers = [await post(client, body([system(), user(f"{n}")])) for n in range(20)]

    assert [answer.status_code for answer in answers] == [200] * 20
