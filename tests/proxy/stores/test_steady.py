"""A store that is down, slow or back again, as its callers see it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import structlog

from proxy.stores.backlog import Backlog
from proxy.stores.breaker import Breaker
from proxy.stores.contract import Found, Mark, StoreError
from proxy.stores.memory import MemoryStore
from proxy.stores.redis import RedisStore
from proxy.stores.steady import Limits, SteadyStore
from tests.proxy.stores.conftest import PATIENT
from tests.proxy.stores.redis_servers import RedisServer


class Switched(MemoryStore):
    """A store in memory that can be broken, hung or full."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = self.hung = self.full = False
        self.opened = self.closed = False
        self.calls: list[str] = []

    async def open(self) -> None:
        await self._pass("open")
        self.opened = True

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        await self._pass("look")
        return await super().look(keys, marks)

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        await self._pass("add")
        if self.full:
            raise StoreError("full")
        return await super().add(items, ttl_s, mark)

    async def unmark(self, key: bytes, turn: bytes) -> None:
        await self._pass("unmark")
        await super().unmark(key, turn)

    async def close(self) -> None:
        self.closed = True

    async def _pass(self, what: str) -> None:
        self.calls.append(what)
        if self.broken:
            raise StoreError("broken")
        if self.hung:
            await asyncio.Event().wait()


class Gate:
    """Stands for sleep: waits are noted, and end when the test says so."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._open = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await self._open.wait()
        self._open.clear()

    async def let_through(self) -> None:
        """End the wait that is under way, and let what follows it run."""
        await settle()
        self._open.set()
        await settle()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in a real server
            await asyncio.sleep(0.01)


@pytest.fixture
def inner() -> Switched:
    return Switched()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def store(inner: Switched, gate: Gate) -> SteadyStore:
    store = steady(inner, gate)
    await store.open()
    return store


def steady(inner: Switched, gate: Gate, **options: object) -> SteadyStore:
    return SteadyStore(
        inner,
        name="the store",
        limits=Limits(call_s=0.02, close_s=0.05),
        breaker=Breaker(first_s=1.0, longest_s=4.0, chance=lambda: 0.0),
        sleep=gate.sleep,
        **options,
    )


async def fail(store: SteadyStore, times: int = 3) -> None:
    for _ in range(times):
        with pytest.raises(StoreError):
            await store.look([b"k"])


async def test_a_slow_call_is_given_up(store: SteadyStore, inner: Switched) -> None:
    inner.hung = True

    with pytest.raises(StoreError, match=r"^the store: look took longer than 0\.02 s$"):
        await store.look([b"k"])

    assert (store.stats.failures, store.stats.timeouts) == (1, 1)
    assert not store.stats.down


async def test_a_store_that_is_down_is_left_alone(store: SteadyStore, inner: Switched) -> None:
    inner.hung = True
    await fail(store)
    inner.calls.clear()

    await fail(store, times=50)
    with pytest.raises(StoreError, match=r"took longer than 0\.02 s; lease is not tried until it is back"):
        await store.lease(b"l", 1.0)

    assert inner.calls == []
    assert store.stats.down
    assert (store.stats.outages, store.stats.refused) == (1, 51)


async def test_calls_that_were_late_together_do_not_take_it_down(store: SteadyStore, inner: Switched) -> None:
    inner.hung = True
    late = await asyncio.gather(*(store.look([b"k"]) for _ in range(50)), return_exceptions=True)

    assert all(isinstance(each, StoreError) for each in late)
    assert not store.stats.down


async def test_it_is_tried_again_ever_more_rarely_and_used_when_it_is_back(
    store: SteadyStore, inner: Switched, gate: Gate
) -> None:
    inner.broken = True
    with structlog.testing.capture_logs() as logs:
        await fail(store)
        for _ in range(4):
            await gate.let_through()
        inner.broken = False
        await gate.let_through()

    assert gate.waits == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert [line["event"] for line in logs] == ["store_down", "store_up"]
    assert not store.stats.down
    assert (await store.look([b"k"])).values == (None,)


async def test_what_could_not_be_added_is_written_when_it_is_back(
    store: SteadyStore, inner: Switched, gate: Gate
) -> None:
    inner.broken = True
    await fail(store)
    for number in range(250):
        with pytest.raises(StoreError):
            await store.add({b"%d" % number: b"v"}, 60.0)
    assert store.stats.waiting == 250
    inner.broken = False
    inner.calls.clear()
    await gate.let_through()

    assert (store.stats.waiting, store.stats.written_back) == (0, 250)
    assert inner.calls == ["look", "add", "add", "add"]
    assert (await store.look([b"0", b"249"])).values == (b"v", b"v")


async def test_a_single_failure_is_made_up_for_too(store: SteadyStore, inner: Switched, gate: Gate) -> None:
    inner.full = True
    with pytest.raises(StoreError, match="full"):
        await store.add({b"k": b"v"}, None)
    await gate.let_through()
    assert store.stats.waiting == 1
    assert not store.stats.down

    inner.full = False
    await gate.let_through()
    assert store.stats.waiting == 0
    assert (await store.look([b"k"])).values == (b"v",)


async def test_a_late_write_does_not_replace_what_another_worker_wrote(inner: Switched, gate: Gate) -> None:
    told: list[Mapping[bytes, bytes]] = []
    store = steady(inner, gate, settled=told.append)
    await store.open()
    inner.broken = True
    await fail(store)
    for value in (b"mine", b"mine, later"):
        with pytest.raises(StoreError):
            await store.add({b"k": value, b"own": value}, 60.0)
    inner.broken = False
    await MemoryStore.add(inner, {b"k": b"theirs"}, 60.0)
    await gate.let_through()

    assert (await store.look([b"k", b"own"])).values == (b"theirs", b"mine")
    assert told == [{b"k": b"theirs", b"own": b"mine"}]
    assert (store.stats.written_back, store.stats.superseded) == (2, 1)


async def test_an_ended_turn_is_made_up_for(store: SteadyStore, inner: Switched, gate: Gate) -> None:
    await store.add({}, None, Mark(b"m", b"turn", 60.0))
    inner.broken = True
    with pytest.raises(StoreError):
        await store.unmark(b"m", b"turn")
    inner.broken = False
    await gate.let_through()

    assert (await store.look([], [b"m"])).marked == frozenset()


async def test_what_waits_is_bounded(inner: Switched, gate: Gate) -> None:
    store = steady(inner, gate, backlog=Backlog(max_items=10))
    await store.open()
    inner.broken = True
    for number in range(25):
        with pytest.raises(StoreError):
            await store.add({b"%d" % number: b"v"}, 60.0)
    assert (store.stats.waiting, store.stats.dropped) == (10, 15)

    inner.broken = False
    await gate.let_through()
    assert (await store.look([b"14", b"15", b"24"])).values == (None, b"v", b"v")


async def test_a_start_without_the_store_is_a_start(inner: Switched, gate: Gate) -> None:
    inner.broken = True
    store = steady(inner, gate)
    await store.open()
    assert store.stats.down
    with pytest.raises(StoreError):
        await store.add({b"k": b"v"}, None)

    inner.broken = False
    await gate.let_through()
    assert inner.opened
    assert (await store.look([b"k"])).values == (b"v",)


async def test_cancelling_a_call_is_no_failure(store: SteadyStore, inner: Switched) -> None:
    inner.hung = True
    for _ in range(10):
        call = asyncio.create_task(store.add({b"k": b"v"}, None))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert (store.stats.failures, store.stats.waiting) == (0, 0)
    assert not store.stats.down


async def test_closing_writes_what_waits(store: SteadyStore, inner: Switched) -> None:
    inner.broken = True
    with pytest.raises(StoreError):
        await store.add({b"k": b"v"}, None)
    inner.broken = False
    await store.close()

    assert (await inner.look([b"k"])).values == (b"v",)
    assert inner.closed


@pytest.mark.parametrize("state", ["broken", "hung"])
async def test_closing_waits_for_nothing_that_does_not_answer(store: SteadyStore, inner: Switched, state: str) -> None:
    setattr(inner, state, True)
    with pytest.raises(StoreError):
        await store.add({b"k": b"v"}, None)

    with structlog.testing.capture_logs() as logs:
        async with asyncio.timeout(2):
            await store.close()

    assert inner.closed
    assert [(line["event"], line["values"]) for line in logs] == [("store_writes_lost", 1)]


async def test_purge_forgets_what_waits_as_well(store: SteadyStore, inner: Switched, gate: Gate) -> None:
    inner.broken = True
    with pytest.raises(StoreError):
        await store.add({b"k": b"v"}, None)
    inner.broken = False
    await store.purge()
    await gate.let_through()

    assert (await store.look([b"k"])).values == (None,)


async def test_no_value_and_no_key_is_logged(store: SteadyStore, inner: Switched, gate: Gate) -> None:
    with structlog.testing.capture_logs() as logs:
        inner.broken = True
        for _ in range(4):
            with pytest.raises(StoreError):
                await store.add({b"key-text": b"value-text"}, 60.0, Mark(b"mark-text", b"turn-text", 1.0))
        await gate.let_through()
        await store.close()

    assert {line["event"] for line in logs} == {"store_down", "store_writes_lost"}
    assert "text" not in repr(logs)


async def test_a_redis_that_is_killed_and_restarted_gets_what_it_missed(tmp_path: Path, gate: Gate) -> None:
    """Two workers; the one that noticed the outage first writes late, and does not overwrite the other."""
    server = RedisServer(tmp_path)
    server.start()
    slow = SteadyStore(RedisStore(server.url, name="redis"), name="redis", limits=PATIENT, sleep=gate.sleep)
    quick = SteadyStore(
        RedisStore(server.url, name="redis"), name="redis", limits=PATIENT, breaker=Breaker(first_s=0.01)
    )
    workers = (slow, quick)
    try:
        for worker in workers:
            await worker.open()
            await worker.add({b"before": b"v"}, 60.0)
        server.kill()
        for number in range(5):
            with pytest.raises(StoreError):
                await slow.add({b"shared": b"slow", b"slow%d" % number: b"v"}, 60.0)
        assert slow.stats.down
        with pytest.raises(StoreError):
            await quick.add({b"shared": b"quick"}, 60.0)

        server.start()
        await until(lambda: quick.stats.waiting == 0)
        await gate.let_through()
        await until(lambda: not slow.stats.down)

        found = [(await worker.look([b"shared", b"slow0", b"slow4"])).values for worker in workers]
        assert found == [(b"quick", b"v", b"v")] * 2
        assert (slow.stats.written_back, slow.stats.superseded) == (6, 1)
    finally:
        for worker in workers:
            await worker.close()
        server.kill()


async def test_while_redis_hangs_only_the_first_calls_wait(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    store = SteadyStore(
        RedisStore(server.url, name="redis"), name="redis", breaker=Breaker(first_s=0.05), limits=Limits(call_s=0.1)
    )
    try:
        await store.open()
        await store.add({b"k": b"v"}, 60.0)
        server.pause()
        await fail(store, times=3)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await fail(store, times=200)
        assert loop.time() - start < 2  # at 0.1 s each it would be 20

        server.resume()
        await until(lambda: not store.stats.down)
        assert (await store.look([b"k"])).values == (b"v",)
    finally:
        await store.close()
        server.kill()
