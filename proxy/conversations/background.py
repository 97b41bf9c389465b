"""Work done ahead of time, between the turns of a conversation: one thread, the lowest priority, nothing guaranteed.

What is dropped here costs a cache miss later and nothing else. So the queue is short, the newest work for a
conversation replaces what waited for it, and all of a conversation's work is thrown away when it moves on.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from proxy.guard import Faults
from proxy.memories import Held

Wanted = Callable[[], bool]
Work = Callable[[Wanted], None]
"""Work asks now and then whether it is still wanted, and stops where it is not."""

_LOWEST = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the work so far; `dropped` found no room, `outrun` was replaced or thrown away.

    `waiting` is what is to be done, `busy` the same with what is being done. `held` is how much work there is with
    what runs and what is parked, and `bytes` what it keeps in memory.
    """

    done: int = 0
    failed: int = 0
    dropped: int = 0
    outrun: int = 0
    waiting: int = 0
    busy: int = 0
    held: int = 0
    bytes: int = 0


class _Job:
    __slots__ = ("size", "wanted", "work")

    def __init__(self, work: Work, size: int) -> None:
        self.work = work
        self.size = size
        self.wanted = True


def _nothing(wanted: Wanted) -> None:
    """Work that is over."""


class Background:
    """A queue of at most `size` conversations' work; safe to use from any thread.

    What waits, what is parked and what runs keep requests in memory, of at most `max_bytes` together. The thread
    starts with the first work and does not keep the process alive. Raises ValueError for a bound below 1.
    """

    def __init__(self, *, size: int = 256, max_bytes: int = 64 * 2**20) -> None:
        for bound, value in (("size", size), ("max_bytes", max_bytes)):
            if value < 1:
                raise ValueError(f"{bound}: must be at least 1, got {value}")
        self._size = size
        self.max_bytes = max_bytes
        self._waiting: OrderedDict[bytes, _Job] = OrderedDict()
        self._parked: OrderedDict[bytes, _Job] = OrderedDict()
        self._bytes = 0
        self._running: tuple[bytes, _Job] | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._done = self._failed = self._dropped = self._outrun = 0

    @property
    def counts(self) -> Counts:
        """For metrics."""
        with self._change:
            busy = len(self._waiting) + (self._running is not None)
            return Counts(
                done=self._done,
                failed=self._failed,
                dropped=self._dropped,
                outrun=self._outrun,
                waiting=len(self._waiting),
                busy=busy,
                held=busy + len(self._parked),
                bytes=self._bytes,
            )

    def held(self) -> Held:
        """How much the work that there is keeps in memory."""
        counts = self.counts
        return Held(counts.held, counts.bytes, self.max_bytes)

    def put(self, conversation: bytes, work: Work, size: int = 0) -> bool:
        """Queue work for a conversation, in the place of what waits or runs for it; False once closed.

        It keeps `size` bytes in memory. Where the queue is full, the work that has waited longest is dropped.
        """
        with self._change:
            if self._closed:
                return False
            self._outdate(conversation)
            self._add(self._waiting, conversation, _Job(work, size))
            self._wake()
            return True

    def park(self, conversation: bytes, work: Work, size: int = 0) -> None:
        """Keep work for a conversation until it is resumed, or dropped as what waits is."""
        with self._change:
            if not self._closed:
                self._remove(self._parked, conversation)
                self._add(self._parked, conversation, _Job(work, size))

    def resume(self, conversation: bytes) -> None:
        """Queue the work that was parked for a conversation, if it still is."""
        with self._change:
            job = self._remove(self._parked, conversation)
            if job is not None:
                self._add(self._waiting, conversation, job)
                self._wake()

    def discard(self, conversation: bytes) -> None:
        """Throw away a conversation's work: it has moved on, or a turn is in flight."""
        with self._change:
            self._outdate(conversation)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Throw everything away and wait for the work that runs; False if it still does after `timeout_s`."""
        with self._change:
            self._closed = True
            self._outrun += len(self._waiting) + len(self._parked)
            self._waiting.clear()
            self._parked.clear()
            self._bytes = self._running[1].size if self._running is not None else 0
            if self._running is not None:
                self._running[1].wanted = False
            self._change.notify()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _add(self, queue: OrderedDict[bytes, _Job], conversation: bytes, job: _Job) -> None:
        self._outrun += self._remove(queue, conversation) is not None
        queue[conversation] = job
        self._bytes += job.size
        while len(queue) > self._size:
            self._drop(queue)
        while self._bytes > self.max_bytes and (others := self._parked or self._waiting):
            self._drop(others)

    def _drop(self, queue: OrderedDict[bytes, _Job]) -> None:
        self._remove(queue, next(iter(queue)))
        self._dropped += 1

    def _remove(self, queue: OrderedDict[bytes, _Job], conversation: bytes) -> _Job | None:
        job = queue.pop(conversation, None)
        self._bytes -= job.size if job is not None else 0
        return job

    def _wake(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="trimtab-background", daemon=True)
            self._thread.start()
        self._change.notify()

    def _outdate(self, conversation: bytes) -> None:
        for queue in (self._waiting, self._parked):
            self._outrun += self._remove(queue, conversation) is not None
        if self._running is not None and self._running[0] == conversation:
            self._running[1].wanted = False

    def _next(self) -> _Job | None:
        """The work that has waited longest; None once closed."""
        with self._change:
            if self._running is not None:
                self._bytes -= self._running[1].size
            self._running = None
            while not self._waiting and not self._closed:
                self._change.wait()
            if self._closed:
                return None
            self._running = self._waiting.popitem(last=False)
            return self._running[1]

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # Linux gives each thread a priority; elsewhere it stays as it is
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
        while (job := self._next()) is not None:
            faults = Faults()
            with suppress(SystemExit), faults.guard("background"):  # an exit would end this thread and nothing else
                job.work(lambda job=job: job.wanted)  # type: ignore[misc]
            with self._change:
                self._failed += bool(faults.names)
                self._done += not faults.names and job.wanted
                self._outrun += not faults.names and not job.wanted
                job.work = _nothing  # what it kept in memory is not kept until there is more to do
