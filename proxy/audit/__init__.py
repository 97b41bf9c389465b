"""The audit record's way out: one JSON line a decision, to stdout or rotating files, written by a thread of its own.

Workers share the files: each has an `Audit`, and `audit_sinks` lets one at a time write.
"""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, Full, Queue
from typing import Any, Protocol, TextIO

import msgspec
import structlog

from proxy.audit.sinks import FileSink, StreamSink
from proxy.guard import Faults

PAUSE_S = (
    0.02  # between lots of records: to wake the thread for each of them costs the event loop more than its writing
)
QUEUE = 10_000  # records that wait for a slow sink; more are dropped and counted

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


@dataclass(slots=True)
class Audit:
    """Takes records without ever blocking or raising; `close` writes what still waits."""

    sinks: Sinks
    keeper: Keeper | None = None
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counts: Counts = field(default_factory=Counts)
    _queue: "Queue[Mapping[str, object]]" = field(default_factory=lambda: Queue(QUEUE))
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

    def put(self, record: Mapping[str, object], *, error: bool = False) -> None:
        """Hand over a record; `error` marks it as one that an operator should look at."""
        stamped = {"time": self.now().isoformat(), "level": "error" if error else "info", **record}
        try:
            self._queue.put_nowait(stamped)
        except Full:
            self.counts.dropped += 1

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, at most for `timeout_s` seconds, and stop."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _writer(self, path: str) -> FileSink | StreamSink:
        if path == "-":
            return StreamSink(self.stdout)
        return FileSink(path, max_bytes=self.sinks.max_bytes, backups=self.sinks.backups)

    def _write(self, writers: Sequence[FileSink | StreamSink]) -> None:
        loggers = [structlog.wrap_logger(writer, processors=[_render], wrapper_class=_Line) for writer in writers]
        while True:
            try:
                record = self._queue.get(timeout=0.2)
            except Empty:
                if self._closing.is_set():
                    break
                continue
            line = record if self.sinks.everything else _changes(record)
            for logger in loggers:
                try:
                    logger.line(**line)
                    self.counts.written += 1
                except (OSError, ValueError):  # disk full, pipe closed: the next record may get through
                    self.counts.failed += 1
            if self.keeper is not None:
                self._keep(self.keeper, record)
            if self._queue.empty():
                self._closing.wait(PAUSE_S)
        for writer in writers:
            writer.close()
        if self.keeper is not None:
            self.keeper.close()

    def _keep(self, keeper: Keeper, record: Mapping[str, object]) -> None:
        faults = Faults()
        with faults.guard("audit store"):
            keeper.put(record)
            if self._queue.empty():
                keeper.flush()
        if faults.names:
            self.counts.failed += 1


def _changes(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record without the slots that were kept."""
    kept = {
        name: [slot for slot in record[name] if slot["action"] != "keep"]
        for name in ("slots", "slots_unlisted")
        if record.get(name)
    }
    return {**record, **kept}


class _Line(structlog.BoundLoggerBase):
    """A logger with one method: the record is the whole line, its `event` included."""

    def line(self, event: str, **record: object) -> object:
        return self._proxy_to_logger("msg", event, **record)


def _render(logger: object, name: str, record: structlog.typing.EventDict) -> str:
    event = record.pop("event")
    return _encode({"event": event, **record}).decode()
