"""Where audit lines go: a rotating file, or a stream, that several processes may write to at once.

One process at a time has the lock on the file itself, and writes a whole line or, as far as the disk lets it, nothing.
A file that was rotated meanwhile, by another worker or from outside, is seen by its inode, and the new one is locked
instead. The renames of a rotation happen under the lock of the old file, the last of them being the one that makes
room for the new; so nothing is renamed twice, and every line is in one file, whole.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

if sys.platform != "win32":
    import fcntl


class FileSink:
    """The file at `path`, rotated before it grows past `max_bytes` (0: never) to `.1` … `.<backups>`.

    Without backups a file that is full is deleted.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path | str, *, max_bytes: int, backups: int) -> None:
        self._path = os.fspath(path)
        self._max_bytes = max_bytes
        self._backups = backups
        self._descriptor = self._open()

    def write(self, lines: Sequence[bytes]) -> int:
        """Write each line, whole or not at all; gives how many could be."""
        written = at = 0
        most = len(lines)
        while at < len(lines):
            try:
                some = self._write(lines[at : at + most])
            except OSError:
                at, most = at + (most == 1), 1  # there may be room for one of them still
                continue
            written, at = written + some, at + some
        return written

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The lock on the file that is under the path now; gives its size in bytes."""
        while True:
            with _lock(self._descriptor):
                own = os.fstat(self._descriptor)
                if self._is_current(own):
                    yield own.st_size
                    return
            opened = self._open()
            os.close(self._descriptor)
            self._descriptor = opened

    def _write(self, lines: Sequence[bytes]) -> int:
        """Write the first of the lines, as many as the file takes: all of them, or none and raise OSError."""
        while True:  # until there is room: others may have filled the new file too
            with self._locked() as size:
                some = self._fitting(lines, size)
                if some or not self._rotated():
                    self._append(b"".join([line + b"\n" for line in lines[: some or 1]]), size)
                    return some or 1

    def _fitting(self, lines: Sequence[bytes], size: int) -> int:
        """How many of the lines a file of so many bytes takes; an empty one takes any line."""
        for number, line in enumerate(lines):
            grown = size + len(line) + 1
            if size > 0 and 0 < self._max_bytes < grown:
                return number
            size = grown
        return len(lines)

    def _append(self, data: bytes, size: int) -> None:
        try:
            _write(self._descriptor, data)
        except OSError:
            with suppress(OSError):  # half a line would spoil the next one too
                os.ftruncate(self._descriptor, size)
            raise

    def _is_current(self, own: os.stat_result) -> bool:
        try:
            return os.path.samestat(own, os.stat(self._path))
        except FileNotFoundError:
            return False

    def _rotated(self) -> bool:
        """Make room for a new file; False where the folder does not allow it, since a long file is better than none."""
        try:
            for number in range(self._backups - 1, 0, -1):
                with suppress(FileNotFoundError):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            if self._backups:
                os.replace(self._path, f"{self._path}.1")
            else:
                os.remove(self._path)
        except OSError:
            return False
        return True


class StreamSink:
    """A text stream such as stdout. Lines of several processes that share it do not mix, however long they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor: int | None = None
        with suppress(OSError, AttributeError):  # one that is only in memory
            self._descriptor = stream.fileno()

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines; gives how many could be."""
        if self._descriptor is None:
            return sum(map(self._print, lines))
        try:
            self._stream.flush()
            with _owned(self._descriptor):
                _write(self._descriptor, b"".join([line + b"\n" for line in lines]))
        except (OSError, ValueError):  # the pipe is closed
            return 0
        return len(lines)

    def _print(self, line: bytes) -> bool:
        try:
            self._stream.write(line.decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        """Leave the stream open: it is not this sink's own."""


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _lock(descriptor: int) -> Iterator[None]:
    """The lock of an open file, against all who opened it themselves."""
    locked = sys.platform != "win32" and _took(fcntl.flock, descriptor)
    try:
        yield
    finally:
        if locked:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def _owned(descriptor: int) -> Iterator[None]:
    """The lock of a stream that was inherited: the process's, since that of an open file would be shared."""
    locked = sys.platform != "win32" and _took(fcntl.lockf, descriptor)
    try:
        yield
    finally:
        if locked:
            fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _took(lock: Callable[[int, int], None], descriptor: int) -> bool:
    try:
        lock(descriptor, fcntl.LOCK_EX)
    except OSError:  # network file systems may have no locks, and terminals need none
        return False
    return True
