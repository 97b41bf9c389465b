"""A store that never keeps a request waiting: time limits, a rest for a store that is down, writes made up later.

A call that takes longer than its limit is given up. After some failures in a row the store is left alone: calls
fail at once, while one task in the background tries again, ever more rarely. What could not be added is kept, and
written back before the store is used again. That is harmless at any time, since `add` overwrites nothing: where
another worker wrote meanwhile, its value stands.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import structlog

from proxy.memories import Memories
from proxy.stores.backlog import Backlog
from proxy.stores.breaker import Breaker
from proxy.stores.contract import Found, Mark, Store, StoreError
from proxy.stores.memory import MemoryStore

P = ParamSpec("P")
T = TypeVar("T")

Settled = Callable[[Mapping[bytes, bytes]], None]

_BATCH = 100  # values written back with one call
_MARKS_KEPT = 10_000  # ends of turns that a store which is down could not be told; each expires there by itself
_PROBE = b"probe"

_log = structlog.get_logger("trimtab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many seconds a call may take."""

    call_s: float = 0.25
    open_s: float = 5.0
    purge_s: float = 60.0
    close_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What happened since the start, and how things stand.

    `calls` were sent to the store and took `seconds` in all; of them `failures` failed, `timeouts` of those by
    taking too long; `refused` were not sent because the store was `down`. The store went down `outages` times.
    `waiting` values are to be written back; `written_back` have been, in `superseded` cases finding another
    worker's value; `dropped` were too many to keep.
    """

    calls: int = 0
    seconds: float = 0.0
    failures: int = 0
    timeouts: int = 0
    refused: int = 0
    outages: int = 0
    written_back: int = 0
    superseded: int = 0
    dropped: int = 0
    waiting: int = 0
    down: bool = False


class SteadyStore:
    """`inner` behind time limits, a breaker and a backlog; messages call it `name`.

    It keeps the contract of stores, but for one thing: `open` does not fail when the store is down, it is opened
    later instead. An `add` that raises is written back when the store is well, its mark excepted; then `settled`
    is called with the values that stand, and must not raise. `unmark` is made up for as well.
    """

    def __init__(
        self,
        inner: Store,
        *,
        name: str,
        limits: Limits | None = None,
        breaker: Breaker | None = None,
        backlog: Backlog | None = None,
        settled: Settled | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._inner = inner
        self._name = name
        self._limits = limits or Limits()
        self._breaker = breaker or Breaker()
        self._backlog = Backlog() if backlog is None else backlog  # an empty one is false
        self._ended: dict[tuple[bytes, bytes], None] = {}
        self._settled = settled
        self._clock = clock
        self._sleep = sleep
        self._counts = Stats()
        self._opened = False
        self._why = ""
        self._mending: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """How messages call the store; no credentials in it."""
        return self._name

    @property
    def stats(self) -> Stats:
        """What happened so far, for metrics."""
        return replace(self._counts, dropped=self._backlog.dropped, waiting=len(self._backlog), down=self._breaker.open)

    @property
    def memories(self) -> Memories:
        """What it holds in this process: itself, where it is in memory, and what waits until it is back."""
        own: Memories = {"state": self._inner.held} if isinstance(self._inner, MemoryStore) else {}
        return {**own, "backlog": self._backlog.held}

    async def open(self) -> None:
        """Connect or create; where that fails the store counts as down, and is opened when it can be."""
        try:
            await self._sent("open", self._limits.open_s, self._inner.open)
            self._opened = True
        except StoreError as error:
            self._breaker.trip()
            self._went_down(error)

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        """Values of keys, and which of `marks` have a live turn."""
        return await self._call("look", self._limits.call_s, self._inner.look, keys, marks)

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        """Write what is not there yet; where that fails, later."""
        try:
            return await self._call("add", self._limits.call_s, self._inner.add, items, ttl_s, mark)
        except StoreError:
            self._backlog.put(items, ttl_s)
            self._mend()
            raise

    async def unmark(self, key: bytes, turn: bytes) -> None:
        """End a turn's mark; where that fails, later."""
        try:
            await self._call("unmark", self._limits.call_s, self._inner.unmark, key, turn)
        except StoreError:
            if len(self._ended) < _MARKS_KEPT:
                self._ended[key, turn] = None
            self._mend()
            raise

    async def lease(self, key: bytes, ttl_s: float) -> bytes | None:
        """A token while nobody else holds the lease, else None."""
        return await self._call("lease", self._limits.call_s, self._inner.lease, key, ttl_s)

    async def release(self, key: bytes, token: bytes) -> None:
        """Give a lease back; where that fails it expires by itself."""
        await self._call("release", self._limits.call_s, self._inner.release, key, token)

    async def purge(self) -> int:
        """Forget everything, what waits to be written included."""
        self._backlog.clear()
        return await self._call("purge", self._limits.purge_s, self._inner.purge)

    async def close(self) -> None:
        """Write back what waits, if the store lets it, and let go of the store."""
        self._closed = True
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.wait({self._mending})
        if self._backlog or self._ended:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(self._limits.close_s):
                    await self._make_up()
        try:
            await self._sent("close", self._limits.close_s, self._inner.close)
        except StoreError as error:
            _log.warning("store_close_failed", store=self._name, error=str(error))
        if self._backlog:
            _log.warning("store_writes_lost", store=self._name, values=len(self._backlog))

    async def _call(
        self, what: str, limit_s: float, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._breaker.open:
            self._counts = replace(self._counts, refused=self._counts.refused + 1)
            self._mend()
            raise StoreError(f"{self._why}; {what} is not tried until it is back")
        started = self._clock()
        try:
            result = await self._sent(what, limit_s, work, *args, **kwargs)
        except StoreError as error:
            if self._breaker.failed(started, self._clock()):
                self._went_down(error)
            raise
        self._breaker.succeeded()
        return result

    async def _sent(
        self, what: str, limit_s: float, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The result of `work`, timed and counted; StoreError where it takes longer than `limit_s`."""
        start = self._clock()
        late = failed = False
        try:
            async with asyncio.timeout(limit_s):
                return await work(*args, **kwargs)
        except TimeoutError:
            late = failed = True
            raise StoreError(f"{self._name}: {what} took longer than {limit_s:g} s") from None
        except StoreError:
            failed = True
            raise
        finally:
            counts = self._counts
            self._counts = replace(
                counts,
                calls=counts.calls + 1,
                seconds=counts.seconds + self._clock() - start,
                failures=counts.failures + failed,
                timeouts=counts.timeouts + late,
            )

    def _went_down(self, error: StoreError) -> None:
        self._counts = replace(self._counts, outages=self._counts.outages + 1)
        self._why = str(error)
        _log.warning("store_down", store=self._name, error=self._why)
        self._mend()

    def _mend(self) -> None:
        """See to it that somebody tries again."""
        if not self._closed and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._keep_trying(), name="trimtab-store-mend")

    async def _keep_trying(self) -> None:
        while self._breaker.open or self._backlog or self._ended:
            await self._sleep(self._breaker.wait_s())
            try:
                await self._make_up()
            except StoreError:
                self._breaker.trial_failed()
                continue
            if self._breaker.open:
                _log.info("store_up", store=self._name, written_back=self._counts.written_back)
            self._breaker.reset()

    async def _make_up(self) -> None:
        """Open the store if it is not, see that it answers, and write back all that waits."""
        if not self._opened:
            await self._sent("open", self._limits.open_s, self._inner.open)
            self._opened = True
        limit_s = self._limits.call_s
        await self._sent("look", limit_s, self._inner.look, (_PROBE,))
        while (batch := self._backlog.batch(_BATCH)) is not None:
            standing = await self._sent("add", limit_s, self._inner.add, batch.items, batch.ttl_s)
            self._backlog.done(batch)
            self._counts = replace(
                self._counts,
                written_back=self._counts.written_back + len(batch.items),
                superseded=self._counts.superseded + sum(standing[key] != batch.items[key] for key in batch.items),
            )
            if self._settled is not None:
                self._settled(standing)
        while self._ended:
            key, turn = next(iter(self._ended))
            await self._sent("unmark", limit_s, self._inner.unmark, key, turn)
            self._ended.pop((key, turn), None)
