"""The SQLite file of a store: made private, versioned, shared by processes, and begun afresh when it is corrupt.

Everything here blocks, and belongs to the one thread that opened it. Every failure is a StoreError.

One file may be open in several processes when it turns out to be corrupt. Whoever notices moves it aside, under a
lock that every opening takes; the others see that the file under the path is no longer theirs, and open the new one.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog

from proxy.stores.contract import StoreError
from proxy.stores.sqlite_schema import prepare

if sys.platform != "win32":
    import fcntl

OPEN_WAIT_S = 5.0  # how long an opening waits for those of other workers
_CHECKED_BYTES = 32 * 2**20  # a file up to this size is checked page by page when it is opened: about 50 ms

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_log = structlog.get_logger("trimtab")


class DatabaseFile:
    """A connection to `path`, which waits at most `busy_s` seconds for other writers."""

    def __init__(self, path: Path, *, name: str, busy_s: float) -> None:
        self._path = path
        self._name = name
        self._busy_s = busy_s
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._wanted = False

    def open(self) -> None:
        """Open the file, making it (mode 0600) where there is none.

        A corrupt one is moved to the same name with `.corrupt` added, over what an earlier one left there.
        """
        with self._failures():
            self._reopen()
        self._wanted = True

    def close(self) -> None:
        """Let go of the file; what was committed is in it."""
        self._wanted = False
        with self._failures():
            self._drop()

    def transact(self, works: Sequence[Callable[[sqlite3.Connection], Any]], *, write: bool) -> list[Any]:
        """The results of `works`, done in one transaction: all of them or none."""
        with self._failures():
            try:
                return self._transact(works, write)
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                self._renew(str(error))
            return self._transact(works, write)

    def compact(self) -> None:
        """Give the room of deleted rows back to the file system, unless other workers are in the way."""
        with self._failures():
            connection = self._current()
            with suppress(sqlite3.OperationalError):
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _transact(self, works: Sequence[Callable[[sqlite3.Connection], Any]], write: bool) -> list[Any]:
        connection = self._current()
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            results = [work(connection) for work in works]
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled back already
                connection.execute("ROLLBACK")
            raise
        return results

    def _current(self) -> sqlite3.Connection:
        """The connection, to the file that is under the path now."""
        if not self._wanted:
            raise StoreError(f"{self._name}: not open")
        if self._connection is not None and _inode(self._path) == self._inode:
            return self._connection
        return self._reopen()

    def _renew(self, why: str) -> None:
        """Begin afresh, unless another worker already has."""
        self._drop()
        with _alone(self._path.parent):
            if _inode(self._path) == self._inode:
                self._set_aside(why)
        self._reopen()

    def _reopen(self) -> sqlite3.Connection:
        self._drop()
        with _alone(self._path.parent):
            self._make()
            try:
                connection = self._connect()
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                self._set_aside(str(error))
                self._make()
                connection = self._connect()
            self._inode = _inode(self._path)
        self._connection = connection
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _make(self) -> None:
        # SQLite would create it with the umask's mode; the log files beside it take the mode of this one
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=OPEN_WAIT_S, isolation_level=None)
        try:
            prepare(connection, self._name, check=self._path.stat().st_size <= _CHECKED_BYTES)
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_s * 1000)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_aside(self, why: str) -> None:
        aside = self._path.with_name(self._path.name + ".corrupt")
        for suffix in ("-wal", "-shm", ""):  # a log left behind would be played into the new file
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").replace(f"{aside}{suffix}")
        _log.error("store_corrupt", store=self._name, moved_to=str(aside), error=why, hint="a fresh file was begun")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._name}: {error}") from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise StoreError(f"{self._name}: {where}{error.strerror or type(error).__name__}") from None


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _CORRUPT


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return -1


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, so that only one process opens, makes or moves the file at a time."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + OPEN_WAIT_S
        while not _lock(descriptor):
            if time.monotonic() > deadline:
                raise StoreError(f"{directory}: another worker has been opening a file there for {OPEN_WAIT_S} s")
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # network file systems may lock no folders: go without
        return True
    return True
