"""How long a request's body is waited for."""

import asyncio

import pytest
from starlette.types import Message

from proxy.errors import ClientError
from proxy.http.patience import SLOWEST, Patience
from tests.fakes.server import connected
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.proxied import Start


class Clock:
    """Seconds that pass while something is received."""

    def __init__(self, *pieces: tuple[float, int]) -> None:
        self.now = 0.0
        self.pieces = list(pieces)

    async def receive(self) -> Message:
        seconds, size = self.pieces.pop(0)
        self.now += seconds
        return {"type": "http.request", "body": b"x" * size, "more_body": bool(self.pieces)}

    def __call__(self) -> float:
        return self.now


async def test_a_trickle_uses_its_time_up() -> None:
    clock = Clock(*[(1.0, 10)] * 100)
    patience = Patience(clock.receive, 5, clock=clock)

    async def read() -> None:
        for _ in range(100):
            await patience()

    with pytest.raises(ClientError) as caught:
        await read()

    assert (caught.value.status, caught.value.code) == (408, "request_timeout")
    assert clock.now == pytest.approx(6, abs=1)


async def test_a_large_body_has_its_time() -> None:
    clock = Clock(*[(0.9, SLOWEST)] * 100)
    patience = Patience(clock.receive, 5, clock=clock)

    for _ in range(100):
        await patience()

    assert clock.now == pytest.approx(90)


async def test_a_whole_body_is_waited_behind_for_as_long_as_it_takes() -> None:
    sent = asyncio.Event()

    async def receive() -> Message:
        if sent.is_set():
            await asyncio.sleep(0.05)
            return {"type": "http.disconnect"}
        sent.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    patience = Patience(receive, 0.01)

    await patience()
    assert (await patience())["type"] == "http.disconnect"


async def never(exchange: Exchange) -> None:
    await exchange.gone.wait()


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/files", b"/trimtab/preview"])
async def test_a_client_that_stops_in_its_body_gets_a_408(start: Start, upstream: FakeUpstream, path: bytes) -> None:
    client = await start("server: {read_timeout_s: 0.2}")
    upstream.early, upstream.handler = True, never

    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.send(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{" % path)
        status, fields = await raw.head()
        rest = await raw.rest()

    assert status == 408
    assert (b"connection", b"close") in fields
    assert b'"request_timeout"' in rest
    if path == b"/v1/files":
        async with asyncio.timeout(5):
            await (await upstream.arrival()).gone.wait()
