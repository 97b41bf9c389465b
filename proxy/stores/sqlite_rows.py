"""What a store does, as SQL inside a transaction that the caller holds. Times are milliseconds since the epoch."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_bytes
from typing import Any

from proxy.stores.contract import Found, Mark
from proxy.stores.terms import milliseconds

SWEPT_ROWS = 500  # a sweep takes at most this many rows of a table: a few milliseconds, so that nobody waits for it

# What never expires is kept as long as there is anything else
_OLDEST = (
    "DELETE FROM entry WHERE number IN (SELECT number FROM entry WHERE expires IS NOT NULL ORDER BY number LIMIT ?)",
    "DELETE FROM entry WHERE number IN (SELECT number FROM entry WHERE expires IS NULL ORDER BY number LIMIT ?)",
)

_VARIABLES = 500  # SQLite's own limit is 999 in old builds


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a file keeps: rows, and bytes in use."""

    rows: int = 1_000_000
    bytes: int = 2**30


def look(connection: sqlite3.Connection, keys: Sequence[bytes], marks: Sequence[bytes], now: int) -> Found:
    """Values of keys, and which of `marks` have a live turn."""
    values = dict(_select(connection, "SELECT key, value FROM entry WHERE (expires IS NULL OR expires > ?)", keys, now))
    marked = _select(connection, "SELECT DISTINCT key FROM mark WHERE expires > ?", marks, now)
    return Found(values=tuple(values.get(key) for key in keys), marked=frozenset(row[0] for row in marked))


def add(
    connection: sqlite3.Connection, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None, now: int
) -> dict[bytes, bytes]:
    """Write what is not there yet, or has expired; gives what stands."""
    expires = None if ttl_s is None else now + milliseconds(ttl_s)
    connection.executemany(
        "INSERT INTO entry (key, value, expires) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
        " SET value = excluded.value, expires = excluded.expires WHERE entry.expires <= ?",
        [(key, value, expires, now) for key, value in items.items()],
    )
    if mark is not None:
        connection.execute(
            "INSERT INTO mark (key, turn, expires) VALUES (?, ?, ?)"
            " ON CONFLICT (key, turn) DO UPDATE SET expires = excluded.expires",
            (mark.key, mark.turn, now + milliseconds(mark.ttl_s)),
        )
    # Read without a look at `expires`: within this transaction, what was just written stands
    return dict(_select(connection, "SELECT key, value FROM entry WHERE ?", tuple(items), 1))


def unmark(connection: sqlite3.Connection, key: bytes, turn: bytes) -> None:
    """End a turn's mark."""
    connection.execute("DELETE FROM mark WHERE key = ? AND turn = ?", (key, turn))


def lease(connection: sqlite3.Connection, key: bytes, ttl_s: float, now: int) -> bytes | None:
    """A token while nobody else holds the lease, else None."""
    token = token_bytes(16)
    taken = connection.execute(
        "INSERT INTO lease (key, token, expires) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
        " SET token = excluded.token, expires = excluded.expires WHERE lease.expires <= ?",
        (key, token, now + milliseconds(ttl_s), now),
    )
    return token if taken.rowcount == 1 else None


def release(connection: sqlite3.Connection, key: bytes, token: bytes) -> None:
    """Give a lease back, if `token` still holds it."""
    connection.execute("DELETE FROM lease WHERE key = ? AND token = ?", (key, token))


def purge(connection: sqlite3.Connection, now: int) -> int:
    """Delete everything; gives the number of live values."""
    live = connection.execute("SELECT count(*) FROM entry WHERE expires IS NULL OR expires > ?", (now,)).fetchone()[0]
    for table in ("entry", "mark", "lease"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - the three names above
    return int(live)


def sweep(connection: sqlite3.Connection, bounds: Bounds, now: int) -> bool:
    """Delete a batch of what has expired, and of the oldest rows where there are too many; whether more is left."""
    deleted = [
        connection.execute(statement, (now, SWEPT_ROWS)).rowcount
        for statement in (
            "DELETE FROM entry WHERE number IN (SELECT number FROM entry WHERE expires <= ? LIMIT ?)",
            "DELETE FROM mark WHERE (key, turn) IN (SELECT key, turn FROM mark WHERE expires <= ? LIMIT ?)",
            "DELETE FROM lease WHERE key IN (SELECT key FROM lease WHERE expires <= ? LIMIT ?)",
        )
    ]
    left = excess = min(_excess(connection, bounds), SWEPT_ROWS)
    for oldest in _OLDEST:
        if left > 0:
            left -= connection.execute(oldest, (left,)).rowcount
    return SWEPT_ROWS in deleted or excess == SWEPT_ROWS


def _excess(connection: sqlite3.Connection, bounds: Bounds) -> int:
    """How many rows are too many; where only the bytes are, as many as bring them down if all are of one size."""
    rows = int(connection.execute("SELECT count(*) FROM entry").fetchone()[0])
    pages, free, page_size = (
        int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
        for pragma in ("page_count", "freelist_count", "page_size")
    )
    used = (pages - free) * page_size
    too_big = -(-rows * (used - bounds.bytes) // used) if used > bounds.bytes else 0
    return max(rows - bounds.rows, too_big)


def _select(connection: sqlite3.Connection, statement: str, keys: Sequence[bytes], first: int) -> Iterator[Any]:
    for start in range(0, len(keys), _VARIABLES):
        part = keys[start : start + _VARIABLES]
        yield from connection.execute(f"{statement} AND key IN ({','.join('?' * len(part))})", (first, *part))
