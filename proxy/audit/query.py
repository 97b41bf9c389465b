"""Questions to the audit store: which decisions there are, one of them whole, conversations, sums of a period."""

import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from proxy.audit.history import Past, history

MOST = 1000  # decisions in one answer
ID_PREFIX = 4  # of an audit id, so many characters are enough where only one begins with them


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which decisions are asked for: what is None asks for nothing. `since` and `until` are seconds since the epoch."""

    route: str | None = None
    model: str | None = None
    conversation: str | None = None
    policy: str | None = None
    action: str | None = None
    level: str | None = None
    since: float | None = None
    until: float | None = None

    def where(self, *more: tuple[str, object]) -> tuple[str, list[object]]:
        """The conditions in SQL, those of `more` included, and their values."""
        equal = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name not in ("since", "until")]
        conditions = [(f'"{name}" = ?', value) for name, value in equal if value is not None]
        conditions += [("time >= ?", self.since)] if self.since is not None else []
        conditions += [("time < ?", self.until)] if self.until is not None else []
        conditions += more
        return " AND ".join(condition for condition, _ in conditions) or "1", [value for _, value in conditions]


class Decisions:
    """The records in an open database, for the thread that opened it. Everything raises sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def newest(self, which: Filter, *, limit: int = 50, before: int | None = None) -> list[dict[str, Any]]:
        """Rows of decisions, the newest first; those older than row `before`, for the next page."""
        where, values = which.where(*([("id < ?", before)] if before is not None else []))
        return self._rows(f"SELECT * FROM decisions WHERE {where} ORDER BY id DESC LIMIT ?", values, limit)  # noqa: S608

    def after(self, row: int, which: Filter, *, limit: int = MOST) -> list[dict[str, Any]]:
        """Rows of decisions that came after `row`, in order."""
        where, values = which.where(("id > ?", row))
        return self._rows(f"SELECT * FROM decisions WHERE {where} ORDER BY id LIMIT ?", values, limit)  # noqa: S608

    def last(self) -> int:
        """The newest row, 0 where there is none."""
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM decisions").fetchone()[0])

    def records(self, audit_id: str) -> list[dict[str, Any]]:
        """The records, whole, with an audit id, or with one that begins so; two at the most."""
        query = "SELECT record FROM records JOIN decisions USING (id) WHERE audit_id "
        found = self._connection.execute(f"{query} = ? LIMIT 2", (audit_id,)).fetchall()
        if not found and len(audit_id) >= ID_PREFIX and audit_id.isalnum():
            span = (audit_id, audit_id[:-1] + chr(ord(audit_id[-1]) + 1))
            found = self._connection.execute(f"{query} >= ? AND audit_id < ? LIMIT 2", span).fetchall()
        return [msgspec.json.decode(zlib.decompress(each[0])) for each in found]

    def history(self, record: Mapping[str, Any]) -> list[Past]:
        """The decisions that a record replays, the latest first, as far as they are kept."""
        return list(history(record, self._one))

    def conversations(self, which: Filter, *, limit: int = 50) -> list[dict[str, Any]]:
        """Conversations, the latest first: how many requests, cuts and tokens saved, how full, under which policy."""
        where, values = which.where()
        # To group all that is kept takes long; the latest ones stand at the end.
        newest = f"SELECT conversation FROM decisions WHERE conversation IS NOT NULL AND {where} ORDER BY id DESC"  # noqa: S608
        latest: dict[str, None] = {}
        for (conversation,) in self._connection.execute(newest, values):
            latest[conversation] = None
            if len(latest) >= limit:
                break
        query = f"""
            SELECT conversation, max(id) AS id, route, model, policy, max(time) AS last, min(time) AS first,
                count(*) AS requests, sum("trigger" IS NOT NULL) AS cuts, sum(saved * changed) AS saved,
                max(utilization_before) AS fullest, utilization_after, tokens_after, budget
            FROM decisions WHERE conversation IN ({", ".join("?" * len(latest))}) AND {where}
            GROUP BY conversation ORDER BY max(id) DESC LIMIT ?
        """  # noqa: S608 - column names and marks only
        return self._rows(query, [*latest, *values], limit)

    def first(self) -> int:
        """The oldest row, 0 where there is none."""
        return int(self._connection.execute("SELECT coalesce(min(id), 0) FROM decisions").fetchone()[0])

    def figures(self, selected: str, after: int, limit: int) -> list[sqlite3.Row]:
        """The columns that are `selected`, in SQL, of the next rows after one."""
        query = f"SELECT {selected} FROM decisions WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - of our own
        return self._connection.execute(query, (after, limit)).fetchall()

    def _one(self, audit_id: str) -> Mapping[str, Any] | None:
        return next(iter(self.records(audit_id)), None)

    def _rows(self, query: str, values: Sequence[object], limit: int) -> list[dict[str, Any]]:
        found: Iterator[sqlite3.Row] = self._connection.execute(query, [*values, max(1, min(limit, MOST))])
        return [dict(each) for each in found]
