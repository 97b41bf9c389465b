"""Fixtures for tests through the front door."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.proxied import Records, Start, started


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """The audit file of the proxy that `start` starts."""
    return Records(tmp_path / "audit.jsonl")


@pytest.fixture
async def start(upstream: FakeUpstream, serve: Callable[..., Awaitable[str]], records: Records) -> AsyncIterator[Start]:
    """Starts a proxy in front of the fake upstream: `client = await start("defaults: {window: 1000}")`."""
    clients: list[httpx2.AsyncClient] = []

    async def starting(settings: str = "") -> httpx2.AsyncClient:
        clients.append(await started(serve, upstream, records, settings))
        return clients[-1]

    yield starting
    for client in clients:
        await client.aclose()
