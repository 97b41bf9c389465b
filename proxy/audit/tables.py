"""Decisions as lines and periods as tables, for terminals."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from proxy.audit.sums import Totals
from proxy.audit.words import clean

_WIDTHS = (19, 16, 12, 16, 12, 8, 15, 6, 18)
HEADS = ("time (UTC)", "audit id", "route", "model", "policy", "action", "tokens", "fill", "conversation")


def head() -> str:
    """The heads of `line`."""
    return _joined(HEADS)


def line(row: Mapping[str, Any]) -> str:
    """A row of the audit store as one line, so that lists can be cut, searched and followed."""
    before, after = row["tokens_before"], row["tokens_after"]
    fill = row["utilization_after"]
    return _joined(
        (
            datetime.fromtimestamp(row["time"], UTC).strftime("%Y-%m-%d %H:%M:%S"),
            row["audit_id"] or "-",
            row["route"] or "-",
            row["model"] or "-",
            row["policy"] or "-",
            row["action"] or row["event"],
            "not counted" if before is None else str(before) if before == after else f"{before}→{after}",
            "-" if fill is None else f"{fill:.0%}",
            row["conversation"] or "-",
        )
    )


def report(totals: Iterable[Totals], *, by: str | None) -> Table:
    """The sums of a period: a column for each group, a row for each figure."""
    groups = list(totals)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(by or "", overflow="fold")
    for group in groups:
        table.add_column(clean(group.name) if by else "all", justify="right", overflow="fold")
    for name, figures in _figures(groups):
        table.add_row(name, *map(Text, figures))
    return table


def _figures(groups: Sequence[Totals]) -> Iterable[tuple[str, list[str]]]:
    def each(name: str, figures: Iterable[str]) -> tuple[str, list[str]]:
        return name, list(figures)

    yield each("requests", (f"{g.requests:,}" for g in groups))
    yield each("trimmed", (f"{g.trimmed:,}{_part(g.trimmed, g.requests)}" for g in groups))
    yield each("new cuts", (f"{g.cuts:,}" for g in groups))
    yield each("tokens saved", (f"{g.saved:,}{_part(g.saved, g.saved + g.tokens_after)}" for g in groups))
    if any(g.would_save for g in groups):
        yield each("  shadow would have saved", (f"{g.would_save:,}" for g in groups))
    yield each("overflow errors avoided", (f"{g.avoided:,}" for g in groups))
    yield each("cache tokens kept", (f"{g.cache_kept:,}" for g in groups))
    yield each("cache tokens lost to changes", (f"{g.cache_lost:,}" for g in groups))
    yield each(
        "cached, by the upstream", (f"{g.cached_tokens:,}{_part(g.cached_tokens, g.prompt_tokens)}" for g in groups)
    )
    yield each("window filled, mean", ("-" if g.utilization is None else f"{g.utilization:.0%}" for g in groups))
    yield each("window filled, most, as it came", ("-" if g.fullest is None else f"{g.fullest:.0%}" for g in groups))
    yield each("overhead P50, ms", map(_ms, (g.p50_ms for g in groups)))
    yield each("overhead P90, ms", map(_ms, (g.p90_ms for g in groups)))
    yield each("overhead P99, ms", map(_ms, (g.p99_ms for g in groups)))
    yield each("held", (f"{g.held:,}" for g in groups))
    yield each("retried", (f"{g.retried:,}" for g in groups))
    yield each("did not fit", (f"{g.unfit:,}" for g in groups))
    yield each("refused", (f"{g.refused:,}" for g in groups))
    yield each("to look at", (f"{g.alarming:,}" for g in groups))


def _part(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _joined(cells: Iterable[str]) -> str:
    widths = zip(cells, _WIDTHS, strict=True)
    return "  ".join(clean(cell).ljust(width) for cell, width in widths).rstrip()
