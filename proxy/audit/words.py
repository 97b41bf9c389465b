"""One decision in words: the sums that led to it, what became of each slot and why, and which settings would change it.

For people at a terminal; control characters of what clients sent are shown, not obeyed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.audit.history import Past

SHOWN = 400  # characters of a slot's text, where records hold them

_STYLES = {"evict": "red", "summarize": "yellow", "shrink": "yellow", "recall": "green", "keep": "dim"}
_FATES = {
    "evict": "evicted",
    "summarize": "summarised",
    "shrink": "shortened",
    "recall": "recalled",
    "keep": "kept",
}
_LET_GO = {
    "keep_prefix": "Set it to 0 to let the oldest go first; the provider's cache is then lost with each cut.",
    "the policy's keep_said": "A smaller share of the policy's option lets more of what the user said go.",
    "protect_last": "A smaller number lets newer slots go.",
    "pin.first_user": "Set it to false where the first message is no task.",
    "pin.text": "A narrower expression pins less.",
    "pin.tools": "Fewer names pin less.",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def explain(record: Mapping[str, Any], before: Sequence[Past] = ()) -> RenderableType:
    """A record as somebody reads it who has never seen one; `before` are the decisions that it replays."""
    parts: list[RenderableType] = [Text(clean(headline(record)), style="bold"), Text()]
    parts.append(facts([("what", "figures"), *arithmetic(record)]))
    slots = record.get("slots") or []
    if slots:
        parts += [Text(), slot_table(slots)]
        listed = sum(1 for slot in slots if slot.get("index") is not None)
        for row in record.get("slots_unlisted") or ():
            listed += row["slots"]
            what = f"{row['slots']} more {row['role']} slots were {_FATES.get(row['action'], row['action'])}"
            parts.append(Text(clean(f"{what}: {row['tokens']} tokens."), style="dim"))
        if (others := (record.get("slots_total") or 0) - listed) > 0:
            parts.append(Text(f"{others} more slots were not touched by this decision.", style="dim"))
    if before:
        parts += [Text(), past_table(before)]
    parts += [Text(), *(Text(clean(f"- {line}")) for line in advice(record))]
    return Group(*parts)


def headline(record: Mapping[str, Any]) -> str:
    """What happened, in a sentence."""
    where = f"route {record.get('route')}, model {record.get('model') or 'not named'}"
    when = str(record.get("time", ""))[:19].replace("T", " ")
    if record.get("event") == "refused":
        return f"{when} UTC, {where}: answered with {record.get('status')} {record.get('code')}: {record.get('reason')}"
    said = {
        "pass": "sent as it came",
        "trimmed": "trimmed",
        "held": "sent while the answer before it still ran, so that nothing new was decided for later",
        "retried": "found too long by the upstream, trimmed further, and sent once more",
        "unfit": "still over its budget after all that may go was gone",
        "bypass": "sent as it came, since the client asked for it",
        "shadow": "sent as it came, since the route only watches; what follows is what would have been done",
    }.get(str(record.get("action")), str(record.get("action")))
    return f"{when} UTC, {where}: {said}"


def arithmetic(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures in the order in which they follow from each other."""
    window, reserve, budget = record.get("window"), record.get("reserve"), record.get("budget")
    if budget is not None:
        shown = f"{window:,}" if isinstance(window, int) else str(window)
        yield (
            "budget",
            f"window {shown} − reserve {reserve or 0:,} → {budget:,} tokens"
            + (
                ""
                if not isinstance(window, int) or window - (reserve or 0) == budget
                else " (the route's or the client's)"
            ),
        )
    else:
        yield "budget", "none: nobody knows this model's window"
    before, after = record.get("tokens_before"), record.get("tokens_after")
    if before is None:
        bound = record.get("utilization_before")
        yield "prompt", "not counted" + (f": at most {bound:.0%} of the budget" if bound is not None else "")
    else:
        yield "as it came", f"{before:,} tokens{_share(record.get('utilization_before'))}"
        yield (
            "of these",
            (
                f"{record.get('overhead_tokens') or 0:,} tool schemas and framing"
                + (f", {pinned:,} pinned" if (pinned := record.get("pinned_tokens")) is not None else "")
            ),
        )
        yield (
            "as sent",
            f"{after or 0:,} tokens{_share(record.get('utilization_after'))}; {before - (after or 0):,} less",
        )
    if record.get("trigger"):
        yield "cut", f"{record['trigger']}, by {record.get('policy')}, down to {record.get('target') or 0:,} tokens"
        yield from _why_so_deep(record)
    if weights := record.get("weights"):
        yield "weights", ", ".join(f"{name} {value}" for name, value in weights.items())
    if replayed := record.get("replayed"):
        yield "replayed", f"{replayed['slots']} slots were out already, by decision {replayed.get('audit_id')}"
    if (kept := record.get("cache_prefix_tokens")) is not None:
        yield (
            "cache",
            f"{kept:,} leading tokens as in the request before; {record.get('cache_lost_tokens') or 0:,} lost",
        )
    if usage := record.get("usage"):
        yield (
            "the upstream",
            (f"counted {usage.get('prompt_tokens') or 0:,}, {usage.get('cached_tokens') or 0:,} from its cache"),
        )
    if overhead := record.get("overhead_ms"):
        stages = ", ".join(f"{name} {ms:g}" for name, ms in overhead.items() if name != "total")
        yield "took", f"{overhead.get('total', 0):g} ms" + (f" ({stages})" if stages else "")
    for name, value in (
        ("waited", f"{record['held_ms']:g} ms for the answer before it" if record.get("held_ms") else None),
        ("status", record.get("status")),
        ("reason", record.get("reason")),
        ("retry of", record.get("retry_of")),
        ("faults", ", ".join(record.get("faults") or ()) or None),
        ("conversation", record.get("conversation")),
        ("audit id", record.get("audit_id")),
    ):
        if value is not None:
            yield name, str(value)


def advice(record: Mapping[str, Any]) -> Iterator[str]:
    """Which settings of the route decide what this record shows."""
    route = f"route {record.get('route')}"
    if record.get("budget") is None and record.get("event") == "decision":
        yield f"To have it trimmed at all, give the {route} a window (routes.window)."
        return
    if record.get("trigger"):
        yield f"To cut later or less: window, budget_tokens, thresholds and targets of the {route}."
        yield from _advice_on_what_stayed(record)
        yield "To keep certain messages: pin.text, pin.tools or protect_last there, or x-trimtab-pin in the request."
        yield "To have others go: another policy there. `trimtab trim --policy NAME` and /trimtab/preview show which."
    elif record.get("tokens_before") is not None:
        yield f"No new cut: the threshold (thresholds.evict of the {route}) was not reached."
    if record.get("action") == "unfit" or str(record.get("reason")).startswith("on_overflow"):
        yield f"on_overflow of the {route} says what happens when all that may go is gone."


def _why_so_deep(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Which threshold was reached, and how the target follows from the route's rules; older records do not say."""
    rules, budget, kind = record.get("rules"), record.get("budget"), record.get("trigger")
    name = "emergency" if kind == "emergency" else "evict"
    if not rules or not budget or kind not in ("normal", "emergency", "background"):
        return
    threshold, share = rules["thresholds"][name], rules["targets"][name]
    yield "threshold", f"thresholds.{name} {threshold:.0%} of {budget:,} = {int(threshold * budget):,} tokens"
    wanted, target = int(share * budget), record.get("target") or 0
    lowered = f", lowered to {target:,} so that the next cut does not come within breathing_turns" * (target < wanted)
    yield "target", f"targets.{name} {share:.0%} of {budget:,} = {wanted:,} tokens{lowered}"


def _advice_on_what_stayed(record: Mapping[str, Any]) -> Iterator[str]:
    """For each setting that kept slots: how many tokens it kept, and how to have them go."""
    kept: dict[str, int] = {}
    for slot in record.get("slots") or ():
        for setting in (
            "keep_prefix",
            "the policy's keep_said",
            "protect_last",
            "pin.first_user",
            "pin.text",
            "pin.tools",
        ):
            if f"({setting}" in str(slot.get("reason")) and slot.get("action") == "keep":
                kept[setting] = kept.get(setting, 0) + (slot.get("tokens") or 0)
    for setting, tokens in kept.items():
        yield f"{setting} kept {tokens:,} tokens here. {_LET_GO[setting]}"


def slot_table(slots: Sequence[Mapping[str, Any]]) -> Table:
    """The slots in order, notes at the end."""
    texts = any("text" in slot for slot in slots)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("messages", "role", "tokens", "fate", "score", "why", *(("text",) if texts else ())):
        table.add_column(head, justify="right" if head in ("tokens", "score") else "left", overflow="fold")
    for slot in _gathered(slots):
        fate = str(slot.get("action"))
        marks = [name for name in ("pinned", "protected") if slot.get(name)]
        note = slot.get("index") is None
        cells = [
            f"{'note on ' if note else ''}{spans(slot.get('messages') or ())}",
            str(slot.get("role")),
            f"{slot.get('tokens') or 0:,}",
            "taken back" if note and fate == "evict" else _FATES.get(fate, fate),
            "" if slot.get("score") is None else f"{slot['score']:g}",
            str(slot.get("reason") or ", ".join(marks)),
            *((str(slot.get("text", ""))[:SHOWN],) if texts else ()),
        ]
        table.add_row(*(Text(clean(cell)) for cell in cells), style=_STYLES.get(fate, ""))
    return table


def _gathered(slots: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The slots, runs of those that were kept for the same reason as one; what has a text stays by itself."""

    def alike(slot: Mapping[str, Any]) -> object:
        return (
            slot.get("reason") if slot.get("action") == "keep" and slot.get("reason") and "text" not in slot else None
        )

    for reason, run in groupby(slots, alike):
        found = list(run)
        if reason is None or len(found) == 1:
            yield from found
            continue
        roles = {str(slot.get("role")) for slot in found}
        yield {
            **found[0],
            "messages": sorted(index for slot in found for index in slot.get("messages") or ()),
            "role": roles.pop() if len(roles) == 1 else f"{len(found)} slots",
            "tokens": sum(slot.get("tokens") or 0 for slot in found),
        }


def past_table(before: Sequence[Past]) -> Table:
    """What was out already, decision by decision."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", title="Out already", title_justify="left", title_style="bold"
    )
    for head in ("messages", "tokens", "cut", "by", "when", "decision"):
        table.add_column(head, justify="right" if head == "tokens" else "left", overflow="fold")
    for past in before:
        if past.gone is None:
            table.add_row("no longer kept", "", "", "", "", Text(clean(past.audit_id)))
            continue
        shortened = f"; shortened {spans(past.shortened)}" if past.shortened else ""
        cells = (
            f"{spans(past.gone) or 'none'}{shortened}",
            f"{past.tokens or 0:,}",
            past.trigger or "-",
            past.policy or "-",
            str(past.time)[:19].replace("T", " "),
            past.audit_id,
        )
        table.add_row(*(Text(clean(cell)) for cell in cells))
    return table


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and what they are, the first pair being the heads."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows[1:]:
        table.add_row(name, Text(clean(value)))
    return table


def spans(messages: Sequence[int]) -> str:
    """Indexes as people write them: 3–5, 8."""
    found: list[list[int]] = []
    for index in messages:
        if found and index == found[-1][-1] + 1:
            found[-1].append(index)
        else:
            found.append([index])
    return ", ".join(f"{span[0]}–{span[-1]}" if len(span) > 1 else str(span[0]) for span in found)


def clean(text: str) -> str:
    """A text without what a terminal would obey."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _share(utilization: float | None) -> str:
    return "" if utilization is None else f", {utilization:.0%} of the budget"
