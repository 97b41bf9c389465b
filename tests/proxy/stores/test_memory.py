import pytest

from proxy.stores.contract import Mark
from proxy.stores.memory import ENTRY_OVERHEAD, MemoryStore
from tests.proxy.stores.conftest import Clock


async def test_the_least_recently_used_goes_first() -> None:
    store = MemoryStore(max_entries=3)
    for key in (b"a", b"b", b"c"):
        await store.add({key: key}, None)
    await store.look([b"a"])
    await store.add({b"b": b"again"}, None)
    await store.add({b"d": b"d"}, None)

    assert (await store.look([b"a", b"b", b"c", b"d"])).values == (b"a", b"b", None, b"d")


async def test_bytes_are_bounded_and_given_back() -> None:
    store = MemoryStore(max_bytes=10 * (ENTRY_OVERHEAD + 100))
    for number in range(50):
        await store.add({b"%02d" % number: bytes(98)}, None)
    assert len(store) == 10
    assert store.bytes_held == 10 * (ENTRY_OVERHEAD + 100)

    await store.purge()
    assert store.bytes_held == 0


async def test_what_never_expires_goes_last() -> None:
    store = MemoryStore(max_entries=3)
    await store.add({b"lasting1": b"v", b"lasting2": b"v"}, None)
    for number in range(10):
        await store.add({b"%d" % number: b"v"}, 60.0)
    assert (await store.look([b"lasting1", b"lasting2", b"9"])).values == (b"v",) * 3

    await store.add({b"lasting3": b"v", b"lasting4": b"v"}, None)
    keys = [b"lasting%d" % number for number in range(1, 5)]
    assert (await store.look(keys)).values == (None, b"v", b"v", b"v")


async def test_a_value_over_the_bound_is_not_kept_but_stands_for_its_writer() -> None:
    store = MemoryStore(max_bytes=1000)
    await store.add({b"other": b"v"}, None)

    assert await store.add({b"k": bytes(2000)}, None) == {b"k": bytes(2000)}
    assert (await store.look([b"k", b"other"])).values == (None, b"v")


async def test_what_expired_gives_its_room_back_without_being_asked_for() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    await store.add({b"%d" % number: b"v" for number in range(100)}, 60.0, Mark(b"m", b"t", 60.0))
    await store.lease(b"l", 60.0)
    clock.now += 61

    await store.add({b"new": b"v"}, 60.0)
    assert len(store) == 1
    assert not store._marks
    assert not store._leases


@pytest.mark.parametrize("bound", ["max_entries", "max_bytes"])
def test_a_bound_that_keeps_nothing_is_refused(bound: str) -> None:
    with pytest.raises(ValueError, match=f"{bound}: must be at least 1, got 0"):
        MemoryStore(**{bound: 0})
