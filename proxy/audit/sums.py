"""What a period of decisions comes to: requests, tokens saved, cache kept and lost, overheads. (pure)"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

SUMMED: Mapping[str, str] = {
    "requests": "1",
    "trimmed": "changed",
    "cuts": "\"trigger\" IS NOT NULL AND mode IS 'enforce'",
    "saved": "saved * changed",
    "would_save": "saved * (action IS 'shadow')",
    "avoided": "avoided",
    "held": "action IS 'held'",
    "retried": "action IS 'retried'",
    "unfit": "action IS 'unfit'",
    "refused": "event = 'refused'",
    "alarming": "level = 'error'",
    "tokens_after": "coalesce(tokens_after, 0)",
    "cache_kept": "coalesce(cache_kept * (mode IS 'enforce'), 0)",
    "cache_lost": "coalesce(cache_lost * changed, 0)",
    "prompt_tokens": "coalesce(prompt_tokens, 0)",
    "cached_tokens": "coalesce(cached_tokens, 0)",
    "gone_user": "gone_user",
    "gone_assistant": "gone_assistant",
    "gone_tool": "gone_tool",
    "gone_other": "gone_other",
    "counted": "utilization_after IS NOT NULL",
    "filled": "coalesce(utilization_after, 0)",
}
"""What is summed, in SQL, of each row of the audit store."""
MOST: Mapping[str, str] = {
    "fullest": "coalesce(utilization_before, -1)",
    "fullest_sent": "coalesce(utilization_after, -1)",
}
"""That of which the largest is wanted; -1 where there is none."""
OVERHEAD = "coalesce(overhead_ms, -1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of a group of decisions.

    `saved` is in tokens, of requests that were changed; `would_save` of those in shadow mode. `cache_kept` and
    `cache_lost` are tokens that the provider's cache could hold and that a change took from it; `prompt_tokens` and
    `cached_tokens` are what it said itself. `gone_*` are tokens taken out, by role. Overheads are in milliseconds, None
    where none was measured; utilizations are shares of the budget.
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


def totals(columns: Mapping[str, Floats], overheads: Floats, codes: Codes, names: list[str]) -> list[Totals]:
    """The totals of each group: `codes` says for each decision which of `names` it belongs to; groups without are out.

    `columns` are those of SUMMED and MOST. Percentiles are by nearest rank.
    """
    size = len(names)
    sums = {name: np.bincount(codes, columns[name], size) for name in SUMMED}
    most = {name: np.full(size, -1.0) for name in MOST}
    for name, highest in most.items():
        np.maximum.at(highest, codes, columns[name])
    times = _by_group(overheads, codes, size)
    return [
        _total(name, {key: float(values[at]) for key, values in (sums | most).items()}, times[at])
        for at, name in enumerate(names)
        if sums["requests"][at]
    ]


def _by_group(overheads: Floats, codes: Codes, size: int) -> list[Floats]:
    """The overheads that were measured, group by group, in ascending order."""
    known = overheads >= 0
    overheads, codes = overheads[known], codes[known]
    order = np.lexsort((overheads, codes))
    borders = np.searchsorted(codes[order], np.arange(1, size))
    return np.split(overheads[order], borders)


def _total(name: str, figures: Mapping[str, float], times: Floats) -> Totals:
    whole = {key: int(figures[key]) for key in SUMMED if key not in ("counted", "filled")}
    most = {key: round(figures[key], 4) if figures[key] >= 0 else None for key in MOST}
    return Totals(
        name=name,
        **whole,
        fullest=most["fullest"],
        fullest_sent=most["fullest_sent"],
        utilization=round(figures["filled"] / figures["counted"], 4) if figures["counted"] else None,
        p50_ms=_percentile(times, 0.50),
        p90_ms=_percentile(times, 0.90),
        p99_ms=_percentile(times, 0.99),
    )


def _percentile(ascending: Floats, share: float) -> float | None:
    if not len(ascending):
        return None
    return round(float(ascending[max(0, int(np.ceil(share * len(ascending))) - 1)]), 3)
