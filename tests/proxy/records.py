"""Audit records as the proxy writes them, for tests of what reads them."""

from datetime import UTC, datetime
from typing import Any

NOW = 1_800_000_000.0


def record(number: int = 0, *, age_s: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A cut of 1,000 tokens by `priority`, that took a tool slot out; `fields` replace what it says."""
    slots = [
        {"index": 0, "messages": [0], "role": "system", "tokens": 100, "action": "keep", "pinned": True},
        {
            "index": 1,
            "messages": [1, 2],
            "role": "tool",
            "tokens": 1000,
            "action": "evict",
            "score": 12.5,
            "reason": "lowest score",
        },
    ]
    return {
        "time": datetime.fromtimestamp(NOW - age_s, UTC).isoformat(),
        "level": "info",
        "event": "decision",
        "audit_id": f"{number:016x}",
        "route": "main",
        "model": "gpt-4o",
        "conversation": "c0",
        "mode": "enforce",
        "action": "trimmed",
        "trigger": "normal",
        "policy": "priority",
        "window": 4000,
        "reserve": 1000,
        "budget": 3000,
        "target": 2100,
        "tokens_before": 3100,
        "tokens_after": 2100,
        "overhead_tokens": 40,
        "pinned_tokens": 100,
        "utilization_before": 1.0333,
        "utilization_after": 0.7,
        "slots_total": 7,
        "slots_evicted": 1,
        "tokens_freed": 1000,
        "cache_prefix_tokens": 140,
        "cache_lost_tokens": 900,
        "overhead_ms": {"parse": 0.5, "count": 0.5, "total": 1.0},
        "held_ms": 0.0,
        "reason": None,
        "faults": [],
        "status": 200,
        "usage": {"prompt_tokens": 2000, "completion_tokens": 5, "cached_tokens": 128},
        "slots": slots,
        **fields,
    }


def refusal(**fields: Any) -> dict[str, Any]:
    """The record of a request that the proxy answered itself."""
    return {
        "time": datetime.fromtimestamp(NOW, UTC).isoformat(),
        "level": "error",
        "event": "refused",
        "route": "main",
        "model": None,
        "code": "context_length_exceeded",
        "status": 400,
        "reason": "This request needs too much.",
        **fields,
    }
