"""A bounded memory of what was read before, by digest; safe to share between threads."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from proxy.memories import Held

V = TypeVar("V")

_ENTRY_OVERHEAD = 600  # bytes of bookkeeping and objects around one small entry, measured on short messages


class Memo(Generic[V]):
    """The most recently used values, whose sizes sum to at most `max_bytes`.

    A value that alone is over a quarter of that is not kept, so that one huge message does not push out the rest.
    `gone` is told of each value that made room, and must not use this memory. Raises ValueError if `max_bytes` is
    negative.
    """

    def __init__(self, max_bytes: int = 64 * 2**20, *, gone: Callable[[V], None] = lambda _: None) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes: must be at least 0 (keeps nothing), got {max_bytes}")
        self._max_bytes = max_bytes
        self._gone = gone
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes_held(self) -> int:
        """The sizes of all entries, bookkeeping included."""
        return self._bytes

    def held(self) -> Held:
        """How much it holds."""
        with self._lock:  # while a value is put, there may be more for a moment
            return Held(len(self._entries), self._bytes, self._max_bytes)

    def get(self, key: Hashable) -> V | None:
        """The value kept under `key`, now the most recently used; None if there is none."""
        try:
            value = self._entries[key][0]
            self._entries.move_to_end(key)  # each call is atomic, and an entry evicted in between is a miss
        except KeyError:
            return None
        return value

    def takes(self, size: int) -> bool:
        """Whether a value of `size` bytes is small enough to be kept."""
        return size + _ENTRY_OVERHEAD <= self._max_bytes // 4

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep `value`, of `size` bytes, under `key`; the least recently used values make room."""
        if not self.takes(size):
            return
        size += _ENTRY_OVERHEAD
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._entries[key] = (value, size)
            self._bytes += size - (replaced[1] if replaced else 0)
            self._make_room()

    def grow(self, key: Hashable, size: int) -> None:
        """What stands under `key` has become larger by `size` bytes; what was used least recently makes room."""
        with self._lock:
            if (entry := self._entries.get(key)) is None:
                return
            self._entries[key] = (entry[0], entry[1] + size)
            self._bytes += size
            if entry[1] + size > self._max_bytes // 4:
                del self._entries[key]
                self._bytes -= entry[1] + size
                self._gone(entry[0])
            self._make_room()

    def drop(self, key: Hashable) -> None:
        """Keep what stands under `key` no longer."""
        with self._lock:
            dropped = self._entries.pop(key, None)
            self._bytes -= dropped[1] if dropped else 0

    def _make_room(self) -> None:
        while self._bytes > self._max_bytes:
            _, (value, freed) = self._entries.popitem(last=False)
            self._bytes -= freed
            self._gone(value)
