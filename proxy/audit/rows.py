"""What of an audit record can be searched for and summed: the columns of the audit store."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

COLUMNS: Mapping[str, str] = {
    "time": "REAL NOT NULL",  # seconds since the epoch
    "event": "TEXT NOT NULL",
    "level": "TEXT NOT NULL",
    "audit_id": "TEXT",
    "route": "TEXT",
    "model": "TEXT",
    "conversation": "TEXT",
    "mode": "TEXT",
    "policy": "TEXT",
    "action": "TEXT",
    "trigger": "TEXT",
    "reason": "TEXT",
    "status": "INTEGER",
    "window": "INTEGER",
    "budget": "INTEGER",
    "tokens_before": "INTEGER",
    "tokens_after": "INTEGER",
    "saved": "INTEGER NOT NULL",
    "slots_evicted": "INTEGER NOT NULL",
    "utilization_before": "REAL",
    "utilization_after": "REAL",
    "cache_kept": "INTEGER",
    "cache_lost": "INTEGER",
    "prompt_tokens": "INTEGER",
    "cached_tokens": "INTEGER",
    "overhead_ms": "REAL",
    "held_ms": "REAL",
    "changed": "INTEGER NOT NULL",  # whether something else than the client's own bytes was sent
    "avoided": "INTEGER NOT NULL",  # whether the upstream would have refused the client's own bytes
    "gone_user": "INTEGER NOT NULL",  # tokens of slots that this decision took out, by role
    "gone_assistant": "INTEGER NOT NULL",
    "gone_tool": "INTEGER NOT NULL",
    "gone_other": "INTEGER NOT NULL",
}
"""Each column and its type in SQL, in order."""

_COPIED = ("event", "level", "audit_id", "route", "model", "conversation", "mode", "policy", "action", "trigger")
_GONE = ("gone_user", "gone_assistant", "gone_tool", "gone_other")


def row(record: Mapping[str, Any]) -> tuple[object, ...]:
    """The columns of one record, in the order of COLUMNS."""
    before, after, window = record.get("tokens_before"), record.get("tokens_after"), record.get("window")
    window = window if isinstance(window, int) else None
    saved = before - after if before is not None and after is not None else 0
    usage = record.get("usage") or {}
    overhead = (record.get("overhead_ms") or {}).get("total")
    changed = record.get("action") not in ("shadow", "bypass", None) and saved != 0
    fields: dict[str, object] = {name: record.get(name) for name in _COPIED}
    fields |= {
        "time": datetime.fromisoformat(record["time"]).timestamp(),
        "reason": record.get("reason") or record.get("code"),
        "status": record.get("status"),
        "window": window,
        "budget": record.get("budget"),
        "tokens_before": before,
        "tokens_after": after,
        "saved": saved,
        "slots_evicted": record.get("slots_evicted") or 0,
        "utilization_before": record.get("utilization_before"),
        "utilization_after": record.get("utilization_after"),
        "cache_kept": record.get("cache_prefix_tokens"),
        "cache_lost": record.get("cache_lost_tokens"),
        "prompt_tokens": usage.get("prompt_tokens"),
        "cached_tokens": usage.get("cached_tokens"),
        "overhead_ms": overhead,
        "held_ms": record.get("held_ms"),
        "changed": changed,
        "avoided": changed and _avoided(before, after, window, record.get("reserve") or 0, record.get("status")),
        **_gone(record.get("slots") or (), record.get("slots_unlisted") or ()),
    }
    return tuple(fields[name] for name in COLUMNS)


def _avoided(before: int | None, after: int | None, window: int | None, reserve: int, status: int | None) -> bool:
    """Whether prompt and reserve were more than the window as they came, are not any more, and were answered."""
    if before is None or after is None or window is None or status is None or status >= 400:
        return False
    return before + reserve > window >= after + reserve


def _gone(slots: Any, unlisted: Any) -> dict[str, int]:
    tokens = dict.fromkeys(_GONE, 0)
    for slot in (*(slot for slot in slots if slot.get("index") is not None), *unlisted):
        if slot.get("action") in ("evict", "summarize"):
            name = f"gone_{slot.get('role')}"
            tokens[name if name in tokens else "gone_other"] += slot.get("tokens") or 0
    return tokens
