"""A bounded memory of what was read before, by digest; safe to share between threads."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")

_ENTRY_OVERHEAD = 600  # bytes of bookkeeping and objects around one small entry, measured on short messages


class Memo(Generic[V]):
    """The most recently used values, whose sizes sum to at most `max_bytes`.

    A value that alone is over a quarter of that is not kept, so that one huge message does not push out the rest.
    Raises ValueError if `max_bytes` is negative.
    """

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes: must be at least 0 (keeps nothing), got {max_bytes}")
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[bytes, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes_held(self) -> int:
        """The sizes of all entries, bookkeeping included."""
        return self._bytes

    def get(self, key: bytes) -> V | None:
        """The value kept under `key`, now the most recently used; None if there is none."""
        try:
            value = self._entries[key][0]
            self._entries.move_to_end(key)  # each call is atomic, and an entry evicted in between is a miss
        except KeyError:
            return None
        return value

    def put(self, key: bytes, value: V, size: int) -> None:
        """Keep `value`, of `size` bytes, under `key`; the least recently used values make room."""
        size += _ENTRY_OVERHEAD
        if size > self._max_bytes // 4:
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._entries[key] = (value, size)
            self._bytes += size - (replaced[1] if replaced else 0)
            while self._bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed
