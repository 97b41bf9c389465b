"""The size of a request's head, and the time that it has."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.http.heads import MOST_WAITING, BoundedHeads
from tests.fakes.server import RawClient, connected


class Small(BoundedHeads):
    max_bytes = 2000
    timeout_s = 0.3


@asynccontextmanager
async def talking(app: ASGIApp = PlainTextResponse("ok")) -> AsyncIterator[RawClient]:  # noqa: B008 - it has no state
    """A client of a server whose heads are small and quick."""
    config = uvicorn.Config(app, http=Small, port=0, log_config=None, lifespan="off")
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


async def test_only_so_many_requests_wait_on_a_connection() -> None:
    """Those that were taken are answered; the others are not begun, and the end of the connection says so."""
    begun = 0

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal begun
        begun += 1
        await PlainTextResponse("ok")(scope, receive, send)

    async with talking(counting) as raw:
        for _ in range(3):
            await raw.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        answers = (await raw.rest()).count(b"HTTP/1.1 200")

    assert MOST_WAITING < answers == begun < 3000


async def test_a_head_that_begins_behind_much_else_is_counted_from_its_own_beginning() -> None:
    async with talking() as raw:
        for _ in range(3):
            await raw.send(head(1000) * 8 + head(1500)[:900])
            await asyncio.sleep(0.01)
            await raw.send(head(1500)[900:])
        for _ in range(27):
            assert (await raw.head())[0] == 200
            assert await raw.reader.readexactly(2) == b"ok"


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


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what was asked: the path, the body, and whether `upgrade` is still there."""
    request = Request(scope, receive)
    said = f"{request.url.path} {(await request.body()).decode()} {request.headers.get('upgrade')}"
    await PlainTextResponse(said)(scope, receive, send)


async def echoed(raw: RawClient) -> str:
    status, fields = await raw.head()
    assert status == 200
    return (await raw.reader.readexactly(int(dict(fields)[b"content-length"]))).decode()


WISH = b"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
WISHES = {
    "length": b"POST /a HTTP/1.1\r\nHost: a\r\n" + WISH + b"Content-Length: 5\r\n\r\nhello",
    "chunks": b"POST /a HTTP/1.1\r\nHost: a\r\n" + WISH + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "two fields": b"POST /a HTTP/1.1\r\nHost: a\r\nconnection: foo\r\n" + WISH + b"Content-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in WISHES.items()])
@pytest.mark.parametrize("step", [1, 7, 50, 1000])
async def test_a_wish_for_an_upgrade_costs_a_request_nothing(sent: bytes, step: int) -> None:
    """Its body arrives, and so does what follows on the connection."""
    async with talking(echo) as raw:
        sent = sent + sent.replace(b"/a", b"/b") + b"GET /c HTTP/1.1\r\nHost: a\r\n\r\n"
        for at in range(0, len(sent), step):
            await raw.send(sent[at : at + step])
            await asyncio.sleep(0)

        assert [await echoed(raw) for _ in range(3)] == ["/a hello h2c", "/b hello h2c", "/c  None"]


async def test_many_wishes_in_a_row_are_all_answered() -> None:
    async with talking(echo) as raw:
        await raw.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n%b\r\n" % (n, WISH) for n in range(100)))

        assert [await echoed(raw) for _ in range(100)] == [f"/{n}  h2c" for n in range(100)]


async def test_a_head_with_a_wish_is_bounded_like_any_other() -> None:
    async with talking(echo) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + WISH + b"X: %b\r\n\r\n" % (b"x" * 3000))
        status, error = await refused(raw)

    assert (status, error["code"]) == (431, "head_too_large")


@pytest.mark.parametrize("codings", [b"gzip, chunked", b"identity, chunked"])
async def test_a_transfer_coding_that_nobody_undoes_is_refused(codings: bytes) -> None:
    """Passed on, it would be taken for the body itself."""
    async with talking(echo) as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: %b\r\n\r\n1\r\na\r\n0\r\n\r\n" % codings)
        status, error = await refused(raw)

    assert (status, error["code"]) == (501, "transfer_coding_unsupported")


async def refused(raw: RawClient) -> tuple[int, dict[str, str]]:
    """The status and the error of the last answer of a connection."""
    status, fields = await raw.head()
    found = dict(fields)
    assert found[b"connection"] == b"close"
    assert found[b"content-type"] == b"application/json"
    content = await raw.rest()
    assert len(content) == int(found[b"content-length"])
    return status, json.loads(content)["error"]


async def test_a_head_that_is_far_too_large_is_told_so_and_not_reset() -> None:
    """A connection that ends while the client still writes takes the answer away with it."""
    async with talking() as raw:
        await raw.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: %b\r\n" % (b"x" * 10_000) * 100)
        status, error = await refused(raw)

    assert (status, error["code"]) == (431, "head_too_large")
    assert error["message"] == "request head: must be at most 2000 bytes"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9, id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP 2"),
        pytest.param(b"hello there\r\n\r\n", id="words"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", id="a field without a value"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", id="a zero in a field"),
        pytest.param(b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two lengths"),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", id="length and chunks"
        ),
        pytest.param(b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n", id="bytes in a path"),
        pytest.param(b"GET http://[:bad HTTP/1.1\r\nHost: a\r\n\r\n", id="a target that is none"),
    ],
)
async def test_what_is_no_http_is_told_so(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with talking() as raw:
            await raw.send(sent)
            status, error = await refused(raw)

    assert (status, error["code"], error["type"]) == (400, "malformed_http", "invalid_request_error")
    assert error["message"].startswith("request: must be HTTP/1.1")
    assert caplog.records == []


class Reader:
    """An application that wants the whole body, takes its time, and says what became of it."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await Request(scope, receive).body()
        except ClientDisconnect as error:
            self.ended.set_result(type(error).__name__)
            return
        await asyncio.sleep(0.1)
        await PlainTextResponse("ok")(scope, receive, send)
        self.ended.set_result("answered")


async def test_a_body_that_breaks_its_framing_is_told_so_and_the_application_too() -> None:
    reader = Reader()
    async with talking(reader) as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.sleep(0.02)
        await raw.send(b"not a size\r\n")
        status, error = await refused(raw)
        ended = await asyncio.wait_for(reader.ended, 5)

    assert (status, error["code"]) == (400, "malformed_http")
    assert ended == "ClientDisconnect"


async def test_an_answer_that_is_due_goes_out_before_the_end_of_what_follows() -> None:
    """Bytes that are no request must not get between the bytes of an answer."""
    reader = Reader()
    async with talking(reader) as raw:
        await raw.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        await asyncio.sleep(0.02)
        await raw.send(b"\x00\x01garbage\r\n\r\n" + b"x" * 5000)
        status, fields = await raw.head()
        rest = await raw.rest()

    assert (status, rest) == (200, b"ok")
    assert (b"connection", b"close") in fields
    assert await reader.ended == "answered"


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


async def test_all_who_are_served_on_a_connection_learn_that_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """The one whose answer is being made too, while others wait behind it."""
    left = asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        async with asyncio.timeout(5):
            while (await receive())["type"] != "http.disconnect":
                pass
        left.set()

    async with talking(waiting) as raw:
        await raw.send(head(1) * 3)
        raw.close()
        async with asyncio.timeout(5):
            await left.wait()
        await asyncio.sleep(0)

    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
