"""Every backend, open and empty, behind one fixture."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.stores.contract import Store
from proxy.stores.memory import MemoryStore
from proxy.stores.redis import RedisStore
from proxy.stores.sqlite import SQLiteStore
from proxy.stores.steady import Limits, SteadyStore
from proxy.stores.urls import parse
from tests.proxy.stores.redis_servers import RedisCluster, RedisServer

PATIENT = Limits(call_s=20.0, open_s=20.0)  # where it is not the limit that is tested: the machine may be busy


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """A store under test; `elapse` lets seconds pass for it, and `another` opens the same one a second time."""

    store: Store
    elapse: Callable[[float], Awaitable[None]]
    another: Callable[[], Store]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(params=["memory", "sqlite", "redis", "cluster", "steady"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    clock = Clock()

    async def elapse(seconds: float) -> None:
        clock.now += seconds

    def sqlite() -> Store:
        return SQLiteStore(tmp_path / "state.db", clock=clock)

    def memory() -> Store:
        return MemoryStore(clock=clock)

    def steady() -> Store:
        return SteadyStore(sqlite(), name="state.db", limits=PATIENT)

    def remote() -> Store:
        server = request.getfixturevalue("redis_server" if request.param == "redis" else "redis_cluster")
        return RedisStore(parse(server.url).target, name="redis", cluster=request.param == "cluster")

    made = {"memory": memory, "sqlite": sqlite, "steady": steady}.get(request.param, remote)
    real = made is remote
    store = made()
    await store.open()
    await store.purge()
    yield Bench(store, asyncio.sleep if real else elapse, made)
    await store.close()
