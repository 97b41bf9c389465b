"""Ready from the start until a signal, whatever else handles that signal."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest
from starlette.requests import Request

from proxy.metrics.health import Health

REQUEST = Request({"type": "http", "method": "GET", "path": "/readyz", "headers": []})


async def status(health: Health) -> tuple[int, str]:
    answer = await health.ready(REQUEST)
    return answer.status_code, json.loads(bytes(answer.body))["status"]


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def caught(request: pytest.FixtureRequest) -> Iterator[tuple[signal.Signals, list[int]]]:
    """A signal that a server handles, and what its handler got."""
    got: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        got.append(number)

    before = signal.signal(request.param, handle)
    yield request.param, got
    assert signal.getsignal(request.param) is handle, "handed back"
    signal.signal(request.param, before)


async def test_ready_until_a_signal_that_the_server_gets_too(caught: tuple[signal.Signals, list[int]]) -> None:
    number, got = caught
    health = Health()

    assert await status(health) == (503, "starting")
    with health.serving():
        assert await status(health) == (200, "ready")
        os.kill(os.getpid(), number)
        assert await status(health) == (503, "draining")
        assert (await health.alive(REQUEST)).status_code == 200
    assert got == [number]


async def test_ready_until_the_end_of_the_service() -> None:
    health = Health()

    with health.serving():
        assert await status(health) == (200, "ready")

    assert await status(health) == (503, "draining")


def test_a_server_that_replaces_the_handler_keeps_its_own(caught: tuple[signal.Signals, list[int]]) -> None:
    number, _ = caught
    handle = signal.getsignal(number)

    def other(number: int, frame: FrameType | None) -> None: ...

    with Health().serving():
        signal.signal(number, other)

    assert signal.getsignal(number) is other
    signal.signal(number, handle)


async def test_a_server_on_a_thread_of_its_own_handles_no_signals() -> None:
    health, seen = Health(), []

    def serve() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with health.serving():
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()

    assert seen == [True]
    assert await status(health) == (503, "draining")
