"""The memory in front of the store is bounded in entries, bytes and time."""

import tracemalloc
from hashlib import blake2b

import pytest

from proxy.conversations.recent import ENTRY_OVERHEAD, Recent


def digest(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


def recent(capacity: int = 3, max_bytes: int = 10**6, now: list[float] | None = None) -> Recent:
    clock = now or [0.0]
    return Recent(capacity=capacity, max_bytes=max_bytes, ttl_s=60, clock=lambda: clock[0])


def test_the_longest_prefix_with_an_entry_is_found() -> None:
    memory = recent()
    chain = tuple(map(digest, range(10)))
    memory.put(chain[2], b"two", 0)
    memory.put(chain[5], b"five", 1)

    found = memory.newest(chain)

    assert found is not None
    assert (found[0], found[1].value, found[1].generation) == (5, b"five", 1)
    assert memory.newest(chain[:2]) is None


def test_what_was_used_longest_ago_makes_room() -> None:
    memory = recent(capacity=2)
    memory.put(digest(1), b"a", 0)
    memory.put(digest(2), b"b", 0)
    memory.newest((digest(1),))
    memory.put(digest(3), b"c", 0)

    assert memory.newest((digest(2),)) is None
    assert memory.newest((digest(1),)) is not None


def test_an_entry_that_was_gone_beyond_makes_room_first() -> None:
    memory = recent(capacity=2)
    memory.put(digest(1), b"a", 0)
    memory.put(digest(2), b"b", 0)
    memory.retire(digest(2))
    memory.put(digest(3), b"c", 0)

    assert memory.newest((digest(2),)) is None
    assert memory.newest((digest(1),)) is not None


def test_bytes_are_bounded_and_given_back() -> None:
    memory = recent(capacity=1000, max_bytes=10 * (ENTRY_OVERHEAD + 100))
    for number in range(50):
        memory.put(digest(number), bytes(100), 0)
        memory.put(digest(number), bytes(100), 1)

    assert len(memory) == 10
    assert memory.bytes_held == 10 * (ENTRY_OVERHEAD + 100)


def test_one_huge_entry_does_not_push_out_the_rest() -> None:
    memory = recent(capacity=1000, max_bytes=10_000)
    memory.put(digest(1), b"a", 0)
    memory.put(digest(2), bytes(9_000), 0)

    assert memory.newest((digest(1),)) is not None
    assert memory.newest((digest(2),)) is None


def test_an_entry_expires() -> None:
    now = [0.0]
    memory = recent(now=now)
    memory.put(digest(1), b"a", 0)
    memory.put(digest(2), b"b", 0)
    now[0] = 59
    memory.put(digest(1), b"a", 0)
    now[0] = 61

    found = memory.newest((digest(1), digest(2)))

    assert found is not None
    assert found[0] == 0
    assert len(memory) == 1


@pytest.mark.parametrize("bounds", [{"capacity": 0}, {"max_bytes": 0}], ids=str)
def test_bounds_below_one_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        recent(**bounds)


def test_the_bytes_held_are_an_upper_bound_of_the_memory_taken() -> None:
    memory = recent(capacity=100_000, max_bytes=10**9)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            memory.put(digest(number), bytes(150) + b"%d" % number, 0)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert taken < memory.bytes_held < 2 * taken
