"""The slots of a decision as an audit record lists them: which went, which stayed, and why. (pure)"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.types import Kind, Slot, Window
from proxy.conversations.placed import Placed
from proxy.pipeline.decision import Fate
from proxy.pipeline.prompt import Prompt, slot_id

Row = dict[str, object]

_RECALLED = "quotes of what was left out, by relevance to the prompt"
_SUMMARY = "stands for the messages that it covers"
_RECALL_GOES = "a cut takes every recall note"


@dataclass(frozen=True, slots=True)
class Listing:
    """`rows` are the slots one by one; `rest` is how many more there are, and their tokens, by action and role."""

    rows: tuple[Row, ...] = ()
    rest: tuple[Row, ...] = ()


def listing(
    window: Window | None,
    prompt: Prompt | None,
    fates: Mapping[str, Fate],
    *,
    everything: bool = False,
    content: bool = False,
    most: int | None = None,
) -> Listing:
    """The slots that `fates` speaks of, or `everything`, oldest first; their texts only with `content`.

    At most `most` of those that a decision changed are rows of their own, and at most as many of those that it kept.
    """
    if window is None or prompt is None:
        return Listing()
    places: dict[str, tuple[int | None, tuple[int, ...]]]
    places = {placed.note.id: (None, placed.note.messages) for placed in prompt.notes}
    places |= {slot_id(group): (index, group.messages) for index, group in enumerate(prompt.groups)}
    rows: list[Row] = []
    listed: Counter[bool] = Counter()
    more: Counter[tuple[str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for slot in window.slots:
        fate = fates.get(slot.id)
        if fate is None and not everything:
            continue
        changed = fate is not None
        if most is not None and listed[changed] >= most:
            kind = (fate.action if fate else "keep", slot.role)
            more[kind] += 1
            tokens[kind] += slot.tokens
            continue
        listed[changed] += 1
        index, messages = places.get(slot.id, (None, ()))
        marked = any(m is not None and m.marked for m in (prompt.messages[i] for i in messages))
        rows.append(_row(slot, fate, index, messages, marked=marked, content=content))
    rest = [{"action": a, "role": r, "slots": n, "tokens": tokens[a, r]} for (a, r), n in sorted(more.items())]
    return Listing(tuple(rows), tuple(rest))


def _row(
    slot: Slot, fate: Fate | None, index: int | None, messages: tuple[int, ...], *, marked: bool, content: bool
) -> Row:
    row: Row = {
        "index": index,
        "messages": list(messages),
        "id": slot.id,
        "role": slot.role,
        "tokens": slot.tokens,
        "action": fate.action if fate else "keep",
        "pinned": slot.pinned,
        "protected": slot.protected,
        "score": None if fate is None or fate.score is None else round(fate.score, 4),
        "reason": fate.reason if fate else None,
    }
    if slot.orphan:
        row["client_orphan"] = True
    if marked:
        row["cache_marked"] = True  # the client's cache_control
    if content:
        row["text"] = slot.text
    return row


def notes(made: Iterable[Placed], gone: Iterable[Placed], *, content: bool = False) -> tuple[Row, ...]:
    """The notes that a decision made, and the recall notes that went with it."""
    told = [
        (placed, *(("recall", _RECALLED) if placed.note.kind is Kind.RECALL else ("summarize", _SUMMARY)))
        for placed in made
    ]
    told += [(placed, "evict", _RECALL_GOES) for placed in gone]
    return tuple(_note(placed, action, reason, content=content) for placed, action, reason in told)


def _note(placed: Placed, action: str, reason: str, *, content: bool) -> Row:
    row: Row = {
        "index": None,
        "messages": list(placed.note.messages),
        "id": placed.note.id,
        "role": "user",
        "tokens": placed.tokens,
        "action": action,
        "pinned": False,
        "protected": False,
        "score": None,
        "reason": reason,
    }
    if content:
        row["text"] = placed.text
    return row
