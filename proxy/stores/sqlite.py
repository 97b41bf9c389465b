"""The store in a file: survives restarts, shared by the workers of one machine."""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from proxy.stores import sqlite_rows as rows
from proxy.stores.contract import Found, Mark, StoreError
from proxy.stores.sqlite_file import DatabaseFile

T = TypeVar("T")

_log = structlog.get_logger("trimtab")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    done: Future[Any]
    write: bool


class SQLiteStore:
    """Keeps everything in the SQLite file at `path`.

    One thread of its own holds the connection; calls that wait for it are done together, one transaction for all
    that read and one for all that write. Rows beyond `bounds` and expired ones are deleted in small batches, every
    `sweep_every_s` seconds of use. `clock` gives seconds since the epoch: every worker must see the same.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        bounds: rows.Bounds | None = None,
        busy_s: float = 0.2,
        sweep_every_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = f"sqlite file {path}"
        self._file = DatabaseFile(Path(path), name=self._name, busy_s=busy_s)
        self._bounds = bounds or rows.Bounds()
        self._sweep_every_s = sweep_every_s
        self._clock = clock
        self._jobs: deque[_Job] = deque()
        self._executor: ThreadPoolExecutor | None = None
        self._swept = time.monotonic()

    async def open(self) -> None:
        """Open the file, making it where there is none."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trimtab-sqlite")
        await self._on_thread(self._file.open)

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        """Values of keys, and which of `marks` have a live turn."""
        return await self._do(lambda connection: rows.look(connection, keys, marks, self._now()), write=False)

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        """Write what is not there yet; the first writer wins, whichever process it is in."""
        return await self._do(lambda connection: rows.add(connection, items, ttl_s, mark, self._now()), write=True)

    async def unmark(self, key: bytes, turn: bytes) -> None:
        """End a turn's mark."""
        await self._do(lambda connection: rows.unmark(connection, key, turn), write=True)

    async def lease(self, key: bytes, ttl_s: float) -> bytes | None:
        """A token while nobody else holds the lease, else None."""
        return await self._do(lambda connection: rows.lease(connection, key, ttl_s, self._now()), write=True)

    async def release(self, key: bytes, token: bytes) -> None:
        """Give a lease back, if `token` still holds it."""
        await self._do(lambda connection: rows.release(connection, key, token), write=True)

    async def purge(self) -> int:
        """Forget everything, and make the file small; gives the number of values forgotten."""
        forgotten = await self._do(lambda connection: rows.purge(connection, self._now()), write=True)
        await self._on_thread(self._file.compact)
        return forgotten

    async def close(self) -> None:
        """Finish what was asked for, then let go of the file and the thread."""
        if self._executor is None:
            return
        try:
            await self._on_thread(self._file.close)
        finally:
            self._executor.shutdown(wait=False)
            self._executor = None

    def _now(self) -> int:
        return round(self._clock() * 1000)

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, write: bool) -> T:
        done: Future[T] = Future()
        executor = self._running()
        self._jobs.append(_Job(work, done, write))
        executor.submit(self._drain)
        return await asyncio.wrap_future(done)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._running().submit(work))

    def _running(self) -> ThreadPoolExecutor:
        if self._executor is None:
            raise StoreError(f"{self._name}: not open")
        return self._executor

    def _drain(self) -> None:
        """Do every job that waits; those whose caller has gone are left out."""
        reads: list[_Job] = []
        writes: list[_Job] = []
        with suppress(IndexError):
            while True:
                job = self._jobs.popleft()
                if job.done.set_running_or_notify_cancel():
                    (writes if job.write else reads).append(job)
        self._finish(reads, write=False)
        self._finish(writes, write=True)
        if writes and time.monotonic() - self._swept >= self._sweep_every_s:
            self._sweep()

    def _finish(self, jobs: list[_Job], *, write: bool) -> None:
        if not jobs:
            return
        try:
            results = self._file.transact([job.work for job in jobs], write=write)
        except StoreError as error:
            for job in jobs:
                job.done.set_exception(StoreError(*error.args))
        except BaseException as error:  # noqa: BLE001 - handed on to those who wait, who would wait for ever
            for job in jobs:
                job.done.set_exception(error)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.done.set_result(result)

    def _sweep(self) -> None:
        now, bounds = self._now(), self._bounds
        try:
            [more] = self._file.transact([lambda connection: rows.sweep(connection, bounds, now)], write=True)
        except StoreError as error:
            _log.warning("store_sweep_failed", store=self._name, error=str(error))
            more = False
        if not more:
            self._swept = time.monotonic()
