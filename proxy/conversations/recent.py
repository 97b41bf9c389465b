"""The entries this worker used lately, as the bytes a store has of them; not for use from several threads."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from proxy.conversations.identity import Chain
from proxy.memories import Held

ENTRY_OVERHEAD = 400
"""Bytes around one entry's value: its key, its place in the dictionary and the objects in between; an upper bound."""


class Kept(NamedTuple):
    """An entry's bytes, and how many decisions were made for the same prefix before it."""

    value: bytes
    generation: int
    expires: float


class Recent:
    """At most `capacity` entries of at most `max_bytes` together; what was used longest ago makes room.

    An entry lives for `ttl_s`. Raises ValueError for a capacity or size below 1.
    """

    def __init__(self, *, capacity: int, max_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        for name, value in (("capacity", capacity), ("max_bytes", max_bytes)):
            if value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes_held(self) -> int:
        """The sizes of all entries, overhead included."""
        return self._bytes

    def held(self) -> Held:
        """How much it holds."""
        return Held(len(self._kept), self._bytes, self._max_bytes)

    def newest(self, chain: Chain) -> tuple[int, Kept] | None:
        """The entry of the longest prefix that has one, with the index of its last message."""
        kept = self._kept
        for index in range(len(chain) - 1, -1, -1):
            if chain[index] in kept:
                found = kept[chain[index]]
                if found.expires > self._clock():
                    kept.move_to_end(chain[index])
                    return index, found
                self._drop(chain[index])
        return None

    def put(self, digest: bytes, value: bytes, generation: int) -> None:
        """Keep the entry of a prefix. One that alone is over a quarter of all bytes is not kept."""
        self._drop(digest)
        if len(value) + ENTRY_OVERHEAD > self._max_bytes // 4:
            return
        self._kept[digest] = Kept(value, generation, self._clock() + self._ttl_s)
        self._bytes += len(value) + ENTRY_OVERHEAD
        while len(self._kept) > self._capacity or self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def replace(self, digest: bytes, value: bytes, generation: int) -> None:
        """Put `value` in the place of what is kept of the same prefix and generation, if anything is."""
        kept = self._kept.get(digest)
        if kept is not None and kept.generation == generation and kept.value != value:
            self.put(digest, value, generation)

    def retire(self, digest: bytes) -> None:
        """Let this entry make room before all others: a longer prefix of its conversation has one of its own."""
        if digest in self._kept:
            self._kept.move_to_end(digest, last=False)

    def _drop(self, digest: bytes) -> None:
        dropped = self._kept.pop(digest, None)
        if dropped is not None:
            self._bytes -= len(dropped.value) + ENTRY_OVERHEAD
