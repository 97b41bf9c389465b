"""What upstreams, networks and disks can do to a chat request, and what is left of it: nothing open, and a record."""

import asyncio
import json
import resource
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.fakes.upstream import Exchange, FakeUpstream, completion
from tests.proxy.dialogues import body, dialogue, user
from tests.proxy.proxied import Records, Start, post
from tests.proxy.replicas import Replica

RULES = "defaults: {window: 400, reserve_output: 0, policy: fifo, protect_last: 1, hold: {wait_s: 20}}"
TALK = dialogue(12, size=40)
ASKED = body(TALK, stream=True)
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Tide"},"finish_reason":null}]}\n\n'
SSE = ("Content-Type", "text/event-stream")
CHUNKED = ("Transfer-Encoding", "chunked")
Handler = Callable[[Exchange], Awaitable[None]]


async def reset_at_once(exchange: Exchange) -> None:
    exchange.reset()


async def reset_in_the_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    exchange.reset()


async def not_http(exchange: Exchange) -> None:
    await exchange.send(b"\x15\x03\x01\x00\x02\x02\x46" * 20)
    exchange.close()


async def reset_in_the_body(exchange: Exchange) -> None:
    await exchange.start(200, SSE, CHUNKED)
    await exchange.chunk(EVENT)
    await asyncio.sleep(0.05)  # a reset overtakes what was not read yet
    exchange.reset()


async def half_a_chunk(exchange: Exchange) -> None:
    await exchange.start(200, SSE, CHUNKED)
    await exchange.chunk(EVENT)
    await exchange.send(b"100\r\ndata: half")
    exchange.close()


async def no_final_chunk(exchange: Exchange) -> None:
    await exchange.start(200, SSE, CHUNKED)
    await exchange.chunk(EVENT)
    await exchange.chunk(b"data: [DONE]\n\n")
    exchange.close()


async def a_short_body(exchange: Exchange) -> None:
    await exchange.start(200, ("Content-Type", "application/json"), ("Content-Length", "1000"))
    await exchange.send(b'{"choices":')
    exchange.close()


async def silence(exchange: Exchange) -> None:
    await exchange.gone.wait()


async def a_stall(exchange: Exchange) -> None:
    await exchange.start(200, SSE, CHUNKED)
    await exchange.chunk(EVENT)
    await exchange.gone.wait()


async def still_there(client: httpx2.AsyncClient, upstream: FakeUpstream) -> None:
    """The conversation goes on at once, which a mark that was left would hold up, and nothing is open."""
    upstream.handler = completion
    async with asyncio.timeout(10):
        answer = await post(client, body([*TALK, user("And then? " * 60)]))
    assert answer.status_code == 200
    page = (await client.get("/metrics")).text
    assert "trimtab_requests_open 0.0" in page
    assert "trimtab_streams_open 0.0" in page


@pytest.mark.parametrize(
    ("handler", "status", "code", "end"),
    [
        (reset_at_once, 502, "upstream_broken", "upstream_error"),
        (reset_in_the_head, 502, "upstream_broken", "upstream_error"),
        (not_http, 502, "upstream_broken", "upstream_error"),
        (silence, 504, "upstream_timeout", "upstream_timeout"),
    ],
    ids=["reset at once", "reset in the head", "not HTTP", "silence"],
)
async def test_an_upstream_without_an_answer_is_an_error_in_the_clients_own_language(
    start: Start, upstream: FakeUpstream, records: Records, handler: Handler, status: int, code: str, end: str
) -> None:
    upstream.handler = handler
    client = await start(f"{RULES}\n" + idle(upstream))

    answer = await post(client, ASKED)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["x-trimtab-action"] == "trimmed"
    (record,) = await records.get()
    assert (record["status"], record["stream_end"], record["faults"]) == (status, end, [])
    await still_there(client, upstream)


@pytest.mark.parametrize(
    ("handler", "end"),
    [
        (reset_in_the_body, "upstream_error"),
        (half_a_chunk, "upstream_error"),
        (no_final_chunk, "upstream_error"),
        (a_short_body, "upstream_error"),
        (a_stall, "upstream_timeout"),
    ],
    ids=["reset", "half a chunk", "no final chunk", "a short body", "stall"],
)
async def test_an_answer_that_breaks_off_is_broken_for_the_client_too(
    start: Start, upstream: FakeUpstream, records: Records, handler: Handler, end: str
) -> None:
    upstream.handler = handler
    client = await start(f"{RULES}\n" + idle(upstream))
    got = bytearray()

    with pytest.raises(httpx2.RemoteProtocolError):
        await read(client, got)

    assert got.startswith((EVENT, b'{"choices":'))
    (record,) = await records.get()
    assert (record["stream_end"], record["faults"]) == (end, [])
    await still_there(client, upstream)


def idle(upstream: FakeUpstream) -> str:
    """A route to the same upstream with little patience."""
    return f"upstreams: {{fake: {{base_url: '{upstream.url}/v1', idle_timeout_s: 0.3, connect_timeout_s: 0.3}}}}\n"


async def read(client: httpx2.AsyncClient, into: bytearray) -> None:
    async with client.stream("POST", "/v1/chat/completions", content=ASKED) as answer:
        async for chunk in answer.aiter_raw():
            into += chunk


GARBAGE = {
    "no SSE at all": [b"\x00\xff\xfe\xfd" * 50],
    "broken UTF-8": [b"data: \xf0\x9f", b"\x92\n\n", b"data: [DONE]\n\n"],
    "broken JSON": [b'data: {"choices":[{"del\n\n', b"data: }}}\n\n", EVENT],
    "odd types": [b'data: {"choices":7,"usage":[]}\n\n', b'data: {"choices":[{"delta":[]}]}\n\n', b"data: 1e999\n\n"],
    "deep": [b"data: " + b"[" * 20_000 + b"\n\n", EVENT],
    "one long line": [b"data: " + b"x" * (3 << 20), EVENT],
    "an error page": [b"<html><body>502 Bad Gateway</body></html>"],
}


@pytest.mark.parametrize("pieces", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_in_a_stream_is_relayed_to_the_byte(
    start: Start, upstream: FakeUpstream, records: Records, pieces: list[bytes]
) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, SSE, CHUNKED)
        for piece in pieces:
            await exchange.chunk(piece)
        await exchange.chunk(b"")

    upstream.handler = handler
    client = await start(RULES)
    got = bytearray()

    await read(client, got)

    assert got == b"".join(pieces)
    (record,) = await records.get()
    assert record["stream_end"] in ("done", "eof")
    assert record["faults"] == []
    await still_there(client, upstream)


async def test_an_error_of_100_mb_is_relayed_and_not_gathered(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    size, piece = 100 << 20, b"e" * (1 << 20)

    async def handler(exchange: Exchange) -> None:
        await exchange.start(400, ("Content-Type", "application/json"), ("Content-Length", str(size)))
        for _ in range(size // len(piece)):
            await exchange.send(piece)

    upstream.handler = handler
    client = await start(RULES)
    got = 0
    tracemalloc.start()
    try:
        async with client.stream("POST", "/v1/chat/completions", content=ASKED) as answer:
            async for chunk in answer.aiter_raw():
                got += len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (answer.status_code, got) == (400, size)
    assert peak < 30 << 20, "client, proxy and upstream together, which are all of this process"
    (record,) = await records.get()
    assert (record["status"], record["stream_end"]) == (400, "eof")
    await still_there(client, upstream)


async def test_a_pool_without_a_free_connection_is_a_504_and_the_others_go_on(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    go = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await go.wait()
        await completion(exchange)

    upstream.handler = handler
    settings = f"upstreams: {{fake: {{base_url: '{upstream.url}/v1', max_connections: 1, connect_timeout_s: 0.2}}}}"
    client = await start(f"{RULES}\n{settings}")
    first = asyncio.create_task(post(client, ASKED))
    await upstream.arrival()

    second = await post(client, body([user("another one")]))
    go.set()

    assert (second.status_code, second.json()["error"]["code"]) == (504, "upstream_timeout")
    assert (await first).status_code == 200
    assert len(upstream.exchanges) == 1
    await still_there(client, upstream)


async def test_a_name_that_does_not_resolve_is_a_502_that_says_so(start: Start, upstream: FakeUpstream) -> None:
    client = await start(
        f"{RULES}\nupstreams: {{fake: {{base_url: 'http://nowhere.invalid/v1', connect_timeout_s: 5}}}}"
    )

    answer = await post(client, ASKED)

    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert "invalid" not in answer.json()["error"]["message"].replace("invalid_", ""), "addresses are not for clients"


async def test_an_audit_file_on_a_full_disk_costs_no_request(start: Start, upstream: FakeUpstream) -> None:
    client = await start(f"{RULES}\naudit: {{path: /dev/full, store: null}}")

    answers = [await post(client, ASKED) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[0].headers["x-trimtab-action"] == "trimmed"
    async with asyncio.timeout(5):
        while 'trimtab_audit_records_total{result="failed"} 3.0' not in (await client.get("/metrics")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("place", ["/dev/full", "gone"])
async def test_a_store_that_cannot_be_written_costs_no_request(
    start: Start, upstream: FakeUpstream, records: Records, tmp_path: Any, place: str
) -> None:
    """The folder of the SQLite file is taken away under the proxy, or it never was a database."""
    folder = tmp_path / "state"
    folder.mkdir()
    file = folder / "state.db"
    if place == "/dev/full":
        file.symlink_to("/dev/full")
    client = await start(f"{RULES}\nstate: 'sqlite:///{file}'\nstate_key_env: null")
    if place == "gone":
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()

    answers = [await post(client, body([*TALK, user(f"{n} " * 80)])) for n in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert {answer.headers["x-trimtab-action"] for answer in answers} == {"trimmed"}
    assert all(len(exchange.body) < len(ASKED) for exchange in upstream.exchanges)
    assert json.loads(upstream.last.body)["messages"][0] == TALK[0]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a limit cannot be set on another process")
async def test_a_disk_that_fills_under_audit_and_state_costs_no_request(upstream: FakeUpstream, tmp_path: Path) -> None:
    """And what is written once there is room again is whole."""
    served = Replica(tmp_path / "proxy", f"{RULES}\nstate: 'sqlite:///{tmp_path}/state.db'", upstream=upstream.url)
    await served.start()
    assert served.process is not None
    _, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4096, hard))
    asked = [body([*TALK, user(f"{n} " * 80)]) for n in range(6)]
    try:
        async with served.client() as client:
            answers = [await post(client, each) for each in asked]
            again = await post(client, asked[0])
            sent = [exchange.body for exchange in upstream.exchanges]
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
            after = await post(client, body([*TALK, user("And now? " * 80)]))
    finally:
        served.stop()

    assert [answer.status_code for answer in (*answers, again, after)] == [200] * 8
    assert {answer.headers["x-trimtab-action"] for answer in (*answers, again, after)} == {"trimmed"}
    assert sent[-1] == sent[0], "what this worker decided it remembers, whatever the disk does"
    written = [json.loads(line) for line in served.audit.read_text().splitlines()]
    assert after.headers["x-trimtab-audit-id"] in {record["audit_id"] for record in written}
    assert len(written) < 8, "the disk was full for some"
