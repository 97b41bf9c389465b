"""What a store's SQLite file looks like inside, and how to tell it from another program's."""

import sqlite3

from proxy.stores.contract import StoreError

APPLICATION = 0x7472_696D  # «trim», in the file's header
VERSION = 1

# Times are milliseconds since the epoch, null for never. Rows of `entry` count up, so the lowest is the oldest.
_TABLES = """
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    value BLOB NOT NULL,
    expires INTEGER
);
CREATE INDEX entry_expires ON entry (expires) WHERE expires IS NOT NULL;
CREATE TABLE mark (
    key BLOB NOT NULL,
    turn BLOB NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (key, turn)
) WITHOUT ROWID;
CREATE TABLE lease (
    key BLOB PRIMARY KEY,
    token BLOB NOT NULL,
    expires INTEGER NOT NULL
) WITHOUT ROWID;
"""


def prepare(connection: sqlite3.Connection, name: str, *, check: bool) -> None:
    """Set the connection up, and make the tables in an empty file; `check` reads every page first.

    Raises StoreError for a file that belongs to another program or to a newer version of this one, and
    sqlite3.DatabaseError for a corrupt one. `name` is how messages call the file.
    """
    application, version = _number(connection, "application_id"), _number(connection, "user_version")
    if application not in (0, APPLICATION) or (application == 0 and (version or _tables(connection))):
        raise StoreError(f"{name}: belongs to another program; name a file of its own for the state")
    if version > VERSION:
        raise StoreError(f"{name}: has version {version}, written by a newer trimtab; name another file or upgrade")
    if check and (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # with a WAL: a power cut may cost the last commits, no more
    connection.execute(f"PRAGMA journal_size_limit = {64 * 2**20}")
    if version == 0:
        connection.executescript(
            f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        )


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
