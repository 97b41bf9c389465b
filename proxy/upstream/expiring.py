"""A bounded memory of values that go out of date; not for use from several threads."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Expiring(Generic[K, V]):
    """At most `capacity` values; what was used longest ago makes room. Each lives `ttl_s` from when it was put.

    Raises ValueError for a capacity below 1 or a lifetime of 0 or less.
    """

    def __init__(self, *, capacity: int, ttl_s: float, clock: Callable[[], float]) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: must be at least 1, got {capacity}")
        if not ttl_s > 0:
            raise ValueError(f"ttl_s: must be more than 0 seconds, got {ttl_s}")
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value put under `key`, now the one used last; None if there is none, or it is out of date."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, until = entry
        if self._clock() >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep `value` under `key` from now on."""
        self._entries[key] = (value, self._clock() + self._ttl_s)
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget what is kept under `key`, if anything is."""
        self._entries.pop(key, None)
