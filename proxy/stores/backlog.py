"""What could not be written while a store was down, kept to be written later; bounded. (pure)"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile

from proxy.memories import Held

_OVERHEAD = 350  # bytes of objects and bookkeeping around one value


@dataclass(frozen=True, slots=True)
class Batch:
    """Values that are written with one call."""

    items: Mapping[bytes, bytes]
    ttl_s: float | None


class Backlog:
    """The newest values, at most `max_items` of them and `max_bytes` with their bookkeeping; what is older is dropped.

    The first value kept under a key stays, as it would in the store. Raises ValueError for bounds below 1.
    """

    def __init__(self, *, max_items: int = 10_000, max_bytes: int = 32 * 2**20) -> None:
        for bound, value in (("max_items", max_items), ("max_bytes", max_bytes)):
            if value < 1:
                raise ValueError(f"{bound}: must be at least 1, got {value}")
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: OrderedDict[bytes, tuple[bytes, float | None]] = OrderedDict()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    def held(self) -> Held:
        """How much it holds."""
        return Held(len(self._items), self._bytes, self._max_bytes)

    def put(self, items: Mapping[bytes, bytes], ttl_s: float | None) -> None:
        """Keep values for later; the time they wait is not taken off `ttl_s` seconds."""
        for key, value in items.items():
            if key not in self._items:
                self._items[key] = (value, ttl_s)
                self._bytes += len(key) + len(value) + _OVERHEAD
        while len(self._items) > self._max_items or self._bytes > self._max_bytes:
            self._remove(next(iter(self._items)))
            self.dropped += 1

    def batch(self, size: int) -> Batch | None:
        """The oldest values that live equally long, at most `size` of them; they stay until they are `done`."""
        if not self._items:
            return None
        _, ttl_s = next(iter(self._items.values()))
        return Batch(dict(self._alike(ttl_s, size)), ttl_s)

    def done(self, batch: Batch) -> None:
        """The batch has been written."""
        for key in batch.items:
            if key in self._items:
                self._remove(key)

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._bytes = 0

    def _alike(self, ttl_s: float | None, size: int) -> Iterator[tuple[bytes, bytes]]:
        for key, (value, _) in takewhile(lambda item: item[1][1] == ttl_s, islice(self._items.items(), size)):
            yield key, value

    def _remove(self, key: bytes) -> None:
        value, _ = self._items.pop(key)
        self._bytes -= len(key) + len(value) + _OVERHEAD
