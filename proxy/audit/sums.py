"""What a period of decisions comes to: requests, tokens saved, cache kept and lost, overheads. (pure)"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from proxy.audit.rows import middle

_SUMMED = {
    "requests": "count(*)",
    "trimmed": "sum(changed)",
    "cuts": "sum(\"trigger\" IS NOT NULL AND mode = 'enforce')",
    "saved": "sum(saved * changed)",
    "would_save": "sum(saved * (action IS 'shadow'))",
    "avoided": "sum(avoided)",
    "held": "sum(action IS 'held')",
    "retried": "sum(action IS 'retried')",
    "unfit": "sum(action IS 'unfit')",
    "refused": "sum(event = 'refused')",
    "alarming": "sum(level = 'error')",
    "tokens_after": "coalesce(sum(tokens_after), 0)",
    "cache_kept": "coalesce(sum(cache_kept * (mode IS 'enforce')), 0)",
    "cache_lost": "coalesce(sum(cache_lost * changed), 0)",
    "prompt_tokens": "coalesce(sum(prompt_tokens), 0)",
    "cached_tokens": "coalesce(sum(cached_tokens), 0)",
    "gone_user": "sum(gone_user)",
    "gone_assistant": "sum(gone_assistant)",
    "gone_tool": "sum(gone_tool)",
    "gone_other": "sum(gone_other)",
    "counted": "count(utilization_after)",
    "filled": "coalesce(sum(utilization_after), 0)",
}
_MOST = {"fullest": "max(utilization_before)", "fullest_sent": "max(utilization_after)"}
SUMS = ", ".join(f"{expression} AS {name}" for name, expression in (_SUMMED | _MOST).items())
"""The sums in SQL, over rows of the audit store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of a group of decisions.

    `saved` is in tokens, of requests that were changed; `would_save` of those in shadow mode. `cache_kept` and
    `cache_lost` are tokens that the provider's cache could hold and that a change took from it; `prompt_tokens` and
    `cached_tokens` are what it said itself. `gone_*` are tokens taken out, by role. Overheads are in milliseconds, at
    most 2.5 % off, None where none was measured; utilizations are shares of the budget.
    """

    name: str
    requests: int
    trimmed: int
    cuts: int
    saved: int
    would_save: int
    avoided: int
    held: int
    retried: int
    unfit: int
    refused: int
    alarming: int
    tokens_after: int
    cache_kept: int
    cache_lost: int
    prompt_tokens: int
    cached_tokens: int
    gone_user: int
    gone_assistant: int
    gone_tool: int
    gone_other: int
    fullest: float | None
    fullest_sent: float | None
    utilization: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


def total(name: str, rows: Sequence[Mapping[str, Any]]) -> Totals:
    """The totals of rows with SUMS, one for each `overhead_class`, in its order."""
    sums = {key: sum(row[key] for row in rows) for key in _SUMMED}
    most = {key: max((row[key] for row in rows if row[key] is not None), default=None) for key in _MOST}
    counted, filled = sums.pop("counted"), sums.pop("filled")
    classes = [(row["overhead_class"], row["requests"]) for row in rows if row["overhead_class"] is not None]
    return Totals(
        name=name,
        **sums,
        fullest=most["fullest"],
        fullest_sent=most["fullest_sent"],
        utilization=round(filled / counted, 4) if counted else None,
        p50_ms=_percentile(classes, 0.50),
        p90_ms=_percentile(classes, 0.90),
        p99_ms=_percentile(classes, 0.99),
    )


def _percentile(classes: Sequence[tuple[int, int]], share: float) -> float | None:
    """The nearest-rank percentile of overheads that are counted by class, in ascending order."""
    sofar = list(accumulate(count for _, count in classes))
    if not sofar:
        return None
    number = next(number for (number, _), count in zip(classes, sofar, strict=True) if count >= share * sofar[-1])
    return round(middle(number), 3)
