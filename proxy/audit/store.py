"""Recent audit records where they can be asked for: an SQLite database, bounded by rows and by days.

Records are put by the audit's own thread; whoever reads opens a connection of its own. Workers and the command line
share a file. In memory, a database lives as long as its store, and only this process sees it.
"""

import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

import msgspec
import structlog

from proxy.audit import rows as audit_rows
from proxy.audit.query import Decisions
from proxy.memories import Held, Memories

VERSION = 1  # of the tables; a file of another one is begun anew
BUSY_S = 5.0
PRUNE_S = 60.0
DAY_S = 86_400.0

_NAMES = ", ".join(f'"{name}"' for name in audit_rows.COLUMNS)
_MARKS = ", ".join("?" * len(audit_rows.COLUMNS))
_TYPED = ", ".join(f'"{name}" {kind}' for name, kind in audit_rows.COLUMNS.items())
_SCHEMA = (
    f"CREATE TABLE decisions (id INTEGER PRIMARY KEY AUTOINCREMENT, {_TYPED})",
    "CREATE INDEX decisions_audit_id ON decisions (audit_id)",
    "CREATE INDEX decisions_time ON decisions (time)",
    "CREATE INDEX decisions_conversation ON decisions (conversation, id)",
    "CREATE TABLE records (id INTEGER PRIMARY KEY, record BLOB NOT NULL)",
    "CREATE TRIGGER decisions_gone AFTER DELETE ON decisions BEGIN DELETE FROM records WHERE id = old.id; END",
    f"PRAGMA user_version = {VERSION}",
)
_INSERT = f"INSERT INTO decisions ({_NAMES}) VALUES ({_MARKS})"  # noqa: S608 - names of our own

_log = structlog.get_logger("trimtab")
_encode = msgspec.json.Encoder(enc_hook=str).encode


class AuditStore:
    """At most `rows` records that take at most `max_bytes`, none older than `days` days (0: no limit of that kind).

    They are at `path`, or in memory (None). The bounds are seen to now and then, so that there may be some more. `put`,
    `flush` and `close` belong to one thread. `now` is in seconds since the epoch.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        rows: int = 20_000,
        days: float = 7.0,
        max_bytes: int = 256 * 2**20,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._address = f"file:trimtab-audit-{token_hex(8)}?mode=memory&cache=shared" if path is None else address(path)
        self._rows = rows
        self._days = days
        self._max_bytes = max_bytes
        self._held = Held(0, 0, max_bytes)
        self._now = now
        self._connection: sqlite3.Connection | None = None
        self._pruned = 0.0
        self._added = 0

    def open(self) -> None:
        """Make the database where there is none; one that cannot be read is moved aside.

        Raises:
            OSError: the file cannot be written.
        """
        if self.path is not None:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        try:
            self._connection = self._opened()
        except sqlite3.DatabaseError as error:
            if self.path is None or isinstance(error, sqlite3.OperationalError):
                raise OSError(None, str(error), self.path) from None
            aside = self.path.with_name(f"{self.path.name}.corrupt")
            _log.warning("audit_store_begun_anew", why=str(error), old=str(aside))
            os.replace(self.path, aside)
            for suffix in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.remove(f"{self.path}{suffix}")
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = self._opened()

    @property
    def memories(self) -> Memories:
        """What it keeps in memory: nothing, where it is a file."""
        return {"audit": self.held} if self.path is None else {}

    def held(self) -> Held:
        """How much it held when that was seen to last, from any thread."""
        return self._held

    def put(self, record: Mapping[str, object]) -> None:
        """Add a record; it can be read after the next `flush`. Raises sqlite3.Error."""
        connection = self._current()
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        row = connection.execute(_INSERT, audit_rows.row(record)).lastrowid
        packed = zlib.compress(_encode(record), 1)
        connection.execute("INSERT INTO records (id, record) VALUES (?, ?)", (row, packed))
        self._added += 1

    def flush(self) -> None:
        """Commit what was added, and now and then forget what is too old or too much. Raises sqlite3.Error."""
        connection = self._current()
        now = self._now()
        if self._added and (now - self._pruned >= PRUNE_S or self._added >= max(100, self._rows // 20)):
            self._pruned, self._added = now, 0
            self._prune(connection, now)
        if connection.in_transaction:
            connection.commit()

    def close(self) -> None:
        """Commit, and let go of the database."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self.flush()
            self._connection.close()
            self._connection = None

    @contextmanager
    def reading(self) -> Iterator[Decisions]:
        """What is in the store, for the thread that asks. Raises sqlite3.Error."""
        with reading(self._address) as decisions:
            yield decisions

    def _current(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the audit store is not open")
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        # Opened by the thread that starts the audit, then used by the audit's alone.
        connection = sqlite3.connect(
            self._address, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            if self.path is not None:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                for table in ("decisions", "records"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                for statement in _SCHEMA:
                    connection.execute(statement)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _prune(self, connection: sqlite3.Connection, now: float) -> None:
        if self._rows:
            connection.execute("DELETE FROM decisions WHERE id <= (SELECT max(id) FROM decisions) - ?", (self._rows,))
        if self._days:
            connection.execute("DELETE FROM decisions WHERE time < ?", (now - self._days * DAY_S,))
        while (held := self._look(connection)).bytes > self._max_bytes > 0 and held.entries:
            oldest = "SELECT id FROM decisions ORDER BY id LIMIT ?"
            connection.execute(f"DELETE FROM decisions WHERE id IN ({oldest})", (1 + held.entries // 20,))  # noqa: S608
        self._held = held

    def _look(self, connection: sqlite3.Connection) -> Held:
        """What is there; pages that were freed are used again before others."""
        (count,) = connection.execute("SELECT count(*) FROM decisions").fetchone()
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return Held(count, (pages - free) * size, self._max_bytes)


def address(path: Path) -> str:
    """A database file as SQLite's URIs name it."""
    return path.absolute().as_uri()


@contextmanager
def reading(uri: str) -> Iterator[Decisions]:
    """What is in the database at a URI. Raises sqlite3.Error."""
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
        connection.execute("PRAGMA read_uncommitted = 1")  # in memory, readers would turn the writer away
        connection.execute("PRAGMA query_only = 1")
        connection.row_factory = sqlite3.Row
        yield Decisions(connection)
