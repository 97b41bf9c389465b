"""The store of one process: nothing outlives it, and nobody else sees it."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from secrets import token_bytes

from proxy.memories import Held
from proxy.stores.contract import Found, Mark

ENTRY_OVERHEAD = 300  # bytes of objects and bookkeeping around one entry, measured on 32-byte keys


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    expires: float
    size: int


@dataclass(frozen=True, slots=True)
class _Lease:
    token: bytes
    expires: float


class MemoryStore:
    """The most recently used values: at most `max_entries` of them, and `max_bytes` with their bookkeeping.

    Values that expire make room before those that never do. One that alone is over `max_bytes` is not kept.
    `clock` gives seconds. Raises ValueError for bounds below 1.
    """

    def __init__(
        self,
        *,
        max_entries: int = 200_000,
        max_bytes: int = 128 * 2**20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for bound, value in (("max_entries", max_entries), ("max_bytes", max_bytes)):
            if value < 1:
                raise ValueError(f"{bound}: must be at least 1, got {value}")
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._expiring: OrderedDict[bytes, _Entry] = OrderedDict()
        self._lasting: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0
        self._marks: dict[bytes, dict[bytes, float]] = {}
        self._leases: dict[bytes, _Lease] = {}
        self._swept = clock()

    def __len__(self) -> int:
        return len(self._expiring) + len(self._lasting)

    @property
    def bytes_held(self) -> int:
        """The sizes of all entries, bookkeeping included."""
        return self._bytes

    def held(self) -> Held:
        """How much it holds."""
        return Held(len(self), self._bytes, self._max_bytes)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        """Values of keys, now the most recently used, and which of `marks` have a live turn."""
        now, lasting, expiring = self._clock(), self._lasting, self._expiring
        # Of a long request that is new hardly any key is there.
        values = [self._get(key, now) if key in expiring or key in lasting else None for key in keys]
        marked = [key for key in marks if key in self._marks and self._live(key, now)] if self._marks else ()
        return Found(values=tuple(values), marked=frozenset(marked))

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        """Write what is not there yet; the first writer wins."""
        now = self._clock()
        self._sweep(now)
        if mark is not None:
            turns = self._marks.setdefault(mark.key, {})
            turns[mark.turn] = now + mark.ttl_s
        standing = {}
        for key, value in items.items():
            held = self._get(key, now)
            if held is None:
                self._put(key, value, inf if ttl_s is None else now + ttl_s)
            standing[key] = value if held is None else held
        return standing

    async def unmark(self, key: bytes, turn: bytes) -> None:
        """End a turn's mark."""
        if turns := self._marks.get(key):
            turns.pop(turn, None)
            if not turns:
                del self._marks[key]

    async def lease(self, key: bytes, ttl_s: float) -> bytes | None:
        """A token while nobody else holds the lease, else None."""
        now = self._clock()
        if (held := self._leases.get(key)) is not None and held.expires > now:
            return None
        token = token_bytes(16)
        self._leases[key] = _Lease(token, now + ttl_s)
        return token

    async def release(self, key: bytes, token: bytes) -> None:
        """Give a lease back, if `token` still holds it."""
        if (held := self._leases.get(key)) is not None and held.token == token:
            del self._leases[key]

    async def purge(self) -> int:
        """Forget everything; gives the number of values forgotten."""
        now = self._clock()
        forgotten = len(self._lasting) + sum(entry.expires > now for entry in self._expiring.values())
        self._expiring.clear()
        self._lasting.clear()
        self._marks.clear()
        self._leases.clear()
        self._bytes = 0
        return forgotten

    async def close(self) -> None:
        """Nothing to let go of."""

    def _get(self, key: bytes, now: float) -> bytes | None:
        shelf = self._lasting if key in self._lasting else self._expiring
        entry = shelf.get(key)
        if entry is None:
            return None
        if entry.expires <= now:
            self._drop(shelf, key)
            return None
        shelf.move_to_end(key)
        return entry.value

    def _put(self, key: bytes, value: bytes, expires: float) -> None:
        size = len(key) + len(value) + ENTRY_OVERHEAD
        if size > self._max_bytes:
            return
        self._bytes += size
        shelf = self._lasting if expires == inf else self._expiring
        shelf[key] = _Entry(value, expires, size)
        while len(self) > self._max_entries or self._bytes > self._max_bytes:
            victims = self._expiring or self._lasting
            self._drop(victims, next(iter(victims)))

    def _drop(self, shelf: OrderedDict[bytes, _Entry], key: bytes) -> None:
        self._bytes -= shelf.pop(key).size

    def _live(self, key: bytes, now: float) -> bool:
        return any(expires > now for expires in self._marks.get(key, {}).values())

    def _sweep(self, now: float) -> None:
        """Drop what has expired: values from the least recently used end, marks and leases once a minute."""
        shelf = self._expiring
        while shelf and shelf[oldest := next(iter(shelf))].expires <= now:
            self._drop(shelf, oldest)
        if now - self._swept < 60:
            return
        self._swept = now
        live = {
            key: {turn: expires for turn, expires in turns.items() if expires > now}
            for key, turns in self._marks.items()
        }
        self._marks = {key: turns for key, turns in live.items() if turns}
        self._leases = {key: lease for key, lease in self._leases.items() if lease.expires > now}
