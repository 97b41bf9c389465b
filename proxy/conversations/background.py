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

Wanted = Callable[[], bool]
Work = Callable[[Wanted], None]
"""Work asks now and then whether it is still wanted, and stops where it is not."""

_LOWEST = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of the work so far; `dropped` found no room, `outrun` was replaced or thrown away.

    `waiting` is what is to be done, `busy` the same with what is being done.
    """

    done: int = 0
    failed: int = 0
    dropped: int = 0
    outrun: int = 0
    waiting: int = 0
    busy: int = 0


class _Job:
    __slots__ = ("wanted", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.wanted = True


class Background:
    """A queue of at most `size` conversations' work; safe to use from any thread. Raises ValueError for a size below 1.

    The thread starts with the first work and does not keep the process alive.
    """

    def __init__(self, *, size: int = 256) -> None:
        if size < 1:
            raise ValueError(f"size: must be at least 1, got {size}")
        self._size = size
        self._waiting: OrderedDict[bytes, _Job] = OrderedDict()
        self._running: tuple[bytes, _Job] | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._done = self._failed = self._dropped = self._outrun = 0

    @property
    def counts(self) -> Counts:
        """For metrics."""
        with self._change:
            return Counts(
                done=self._done,
                failed=self._failed,
                dropped=self._dropped,
                outrun=self._outrun,
                waiting=len(self._waiting),
                busy=len(self._waiting) + (self._running is not None),
            )

    def put(self, conversation: bytes, work: Work) -> bool:
        """Queue work for a conversation, in the place of what waits or runs for it; False once closed.

        Where the queue is full, the work that has waited longest is dropped.
        """
        with self._change:
            if self._closed:
                return False
            self._outdate(conversation)
            while len(self._waiting) >= self._size:
                self._waiting.popitem(last=False)
                self._dropped += 1
            self._waiting[conversation] = _Job(work)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="trimtab-background", daemon=True)
                self._thread.start()
            self._change.notify()
            return True

    def discard(self, conversation: bytes) -> None:
        """Throw away a conversation's work: it has moved on, or a turn is in flight."""
        with self._change:
            self._outdate(conversation)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Throw everything away and wait for the work that runs; False if it still does after `timeout_s`."""
        with self._change:
            self._closed = True
            self._outrun += len(self._waiting)
            self._waiting.clear()
            if self._running is not None:
                self._running[1].wanted = False
            self._change.notify()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _outdate(self, conversation: bytes) -> None:
        if self._waiting.pop(conversation, None) is not None:
            self._outrun += 1
        if self._running is not None and self._running[0] == conversation:
            self._running[1].wanted = False

    def _next(self) -> _Job | None:
        """The work that has waited longest; None once closed."""
        with self._change:
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
