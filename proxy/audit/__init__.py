"""The audit record's way out: one JSON line a decision, to stdout or rotating files, written by a thread of its own.

Workers share the files: each has an `Audit`, and `audit_sinks` lets one at a time write.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TextIO

import msgspec

from proxy.audit.sinks import FileSink, StreamSink
from proxy.guard import Faults
from proxy.memories import Held, Memories

PAUSE_S = 0.02  # between lots: to wake the thread for each record costs the event loop more than its writing
LOT = 100  # records that are written at once
QUEUE = 10_000  # records that wait for a slow sink; more are dropped and counted
QUEUE_BYTES = 64 * 2**20  # the most that these may take in memory

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """Where records go: "-" is stdout, anything else a file that is rotated at `max_bytes`, `backups` times.

    Lines hold the slots of a record that a decision changed, or `everything`.
    """

    paths: tuple[str, ...] = ("-",)
    max_bytes: int = 100 * 1024 * 1024
    backups: int = 5
    everything: bool = True


class Keeper(Protocol):
    """What keeps whole records to be asked for, such as `AuditStore`; used by one thread at a time."""

    @property
    def memories(self) -> Memories:
        """What it keeps in memory."""
        ...

    def open(self) -> None:
        """Be ready for records. Raises OSError."""

    def put(self, record: Mapping[str, object]) -> None:
        """Take a record. What it raises is counted."""

    def flush(self) -> None:
        """Nothing waits behind what was put: let it be read. What it raises is counted."""

    def close(self) -> None:
        """No more records come."""


@dataclass(slots=True)
class Counts:
    """Records written, dropped because the queue was full, and lost because a sink failed."""

    written: int = 0
    dropped: int = 0
    failed: int = 0


_Stamped = tuple[datetime, str, Mapping[str, Any], int]
"""When a record was put, its level, the record, and the bytes that it takes."""

_RECORD_BYTES = 4_000  # of a record that lists no slot
_SLOT_BYTES = 700


@dataclass(slots=True)
class Audit:
    """Takes records without ever blocking or raising; `close` writes what still waits."""

    sinks: Sinks
    keeper: Keeper | None = None
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counts: Counts = field(default_factory=Counts)
    _waiting: "deque[_Stamped]" = field(default_factory=deque)  # the lot that is being written is its beginning
    _came: int = 0  # bytes, counted by whoever puts
    _went: int = 0  # and by the thread that writes
    _woken: threading.Event = field(default_factory=threading.Event)
    _idle: bool = True
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the files and the keeper, and start writing.

        Raises:
            OSError: one of them cannot be opened.
        """
        if self.keeper is not None:
            self.keeper.open()
        writers = [self._writer(path) for path in self.sinks.paths]
        self._thread = threading.Thread(target=self._write, args=(writers,), name="audit", daemon=True)
        self._thread.start()

    def put(self, record: Mapping[str, Any], *, error: bool = False) -> None:
        """Hand over a record; `error` marks it as one that an operator should look at."""
        size = _size(record)
        if len(self._waiting) >= QUEUE or self._came + size - self._went > QUEUE_BYTES:
            self.counts.dropped += 1
            return
        self._came += size
        self._waiting.append((self.now(), "error" if error else "info", record, size))
        if self._idle:
            self._woken.set()

    @property
    def memories(self) -> Memories:
        """What waits to be written, and what is kept, where that is in memory."""
        return {"audit_queue": self.held, **(self.keeper.memories if self.keeper is not None else {})}

    def held(self) -> Held:
        """How much waits to be written."""
        return Held(len(self._waiting), self._came - self._went, QUEUE_BYTES)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, at most for `timeout_s` seconds, and stop."""
        self._closing.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _writer(self, path: str) -> FileSink | StreamSink:
        if path == "-":
            return StreamSink(self.stdout)
        return FileSink(path, max_bytes=self.sinks.max_bytes, backups=self.sinks.backups)

    def _write(self, writers: Sequence[FileSink | StreamSink]) -> None:
        while not (self._closing.is_set() and not self._waiting):
            self._idle = True  # before the look: who puts later sees it
            if not self._waiting:
                self._woken.wait()
            self._woken.clear()
            self._idle = False
            while size := min(LOT, len(self._waiting)):
                self._write_lot([self._waiting[place] for place in range(size)], writers)
                for _ in range(size):
                    self._went += self._waiting.popleft()[-1]
            self._closing.wait(PAUSE_S)
        for writer in writers:
            writer.close()
        if self.keeper is not None:
            self.keeper.close()

    def _write_lot(self, lot: "Sequence[_Stamped]", writers: Sequence[FileSink | StreamSink]) -> None:
        records, lines = [], []
        for time, level, record, _ in lot:
            stamped = {"event": record.get("event"), "time": time.isoformat(), "level": level, **record}
            faults = Faults()
            with faults.guard("audit"):
                lines.append(_encode(stamped if self.sinks.everything else _changes(stamped)))
                records.append(stamped)
            self.counts.failed += len(faults.names)
        for writer in writers:
            written = writer.write(lines)
            self.counts.written += written
            self.counts.failed += len(lines) - written
        if self.keeper is not None:
            for stamped in records:
                self._attempt(partial(self.keeper.put, stamped))
            self._attempt(self.keeper.flush)

    def _attempt(self, work: Callable[[], None]) -> None:
        faults = Faults()
        with faults.guard("audit store"):
            work()
        self.counts.failed += len(faults.names)


def _size(record: Mapping[str, Any]) -> int:
    """Bytes that a record takes in memory, on the high side; its texts too, where slots have them."""
    slots = record.get("slots") or ()
    size = _RECORD_BYTES + _SLOT_BYTES * len(slots)
    if slots and "text" in slots[0]:
        size += sum(slot["text"].__sizeof__() for slot in slots)
    return size


def _changes(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record without the slots that were kept."""
    kept = {
        name: [slot for slot in record[name] if slot["action"] != "keep"]
        for name in ("slots", "slots_unlisted")
        if record.get(name)
    }
    return {**record, **kept}
