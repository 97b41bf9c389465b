"""What stays of a window when the most valuable is kept first: values to selection, selection to evictions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from policies.greedy import evict_lowest
from policies.plan import Evict
from policies.turns import is_turn, last_user
from policies.types import Kind, Slot, Window

Unit = tuple[Slot, ...]
"""Slots that stay or go together."""

_SELECTED = 1e6


@dataclass(frozen=True, slots=True)
class Room:
    """`candidates` are the slots whose place is fought for; what they and summaries may take is `tokens`."""

    candidates: tuple[Slot, ...]
    tokens: int


def room(window: Window, target: int) -> Room:
    """The evictable slots before the last user message, and the tokens that the target leaves for them.

    Orphans and recall notes are not among them: orphans no upstream takes, and notes are made anew.
    """
    before = window.slots[: last_user(window.slots)]
    candidates = tuple(slot for slot in before if slot.evictable and not slot.orphan and slot.kind is not Kind.RECALL)
    passing = sum(slot.tokens for slot in before if slot.evictable and (slot.orphan or slot.kind is Kind.RECALL))
    fixed = window.used - passing - sum(slot.tokens for slot in candidates)
    return Room(candidates, max(target - fixed, 0))


def units(window: Window, slots: Iterable[Slot]) -> Iterator[Unit]:
    """The slots in their order, by what has to go together.

    Where turns must alternate that is a question with the answer that follows, tool slots between them apart.
    """
    wanted = {slot.id for slot in slots}
    asked: Slot | None = None
    for slot in window.slots:
        if window.alternate and is_turn(slot):
            if slot.role == "assistant" and asked is not None:
                if pair := tuple(one for one in (asked, slot) if one.id in wanted):
                    yield pair
                asked = None
                continue
            if asked is not None and asked.id in wanted:
                yield (asked,)
            asked = slot if slot.role == "user" else None
            if asked is not None:
                continue
        if slot.id in wanted:
            yield (slot,)
    if asked is not None and asked.id in wanted:
        yield (asked,)


def left(window: Window, evictions: Iterable[Evict]) -> int:
    """Tokens of the window once these are gone."""
    gone = {eviction.slot for eviction in evictions}
    return window.used - sum(slot.tokens for slot in window.slots if slot.id in gone)


def select(order: Iterable[Unit], tokens: int) -> frozenset[str]:
    """The ids of the units that are taken, in the order given, each that still fits into `tokens`."""
    kept: set[str] = set()
    for unit in order:
        size = sum(slot.tokens for slot in unit)
        if size <= tokens:
            kept.update(slot.id for slot in unit)
            tokens -= size
    return frozenset(kept)


def evict_others(
    window: Window,
    target: int,
    kept: frozenset[str],
    value: Mapping[str, float],
    again: Mapping[str, float],
    reason: Callable[[Slot], str],
) -> tuple[Evict, ...]:
    """Evictions until the target is met: what is not in `kept` by its value, recall notes before all.

    Where that is not enough, because of what has to go together, what is kept follows by their scores in `again`.
    """
    floor = min(value.values(), default=0.0) - 1.0

    def score(slot: Slot) -> float:
        if slot.id in kept:
            return _SELECTED + again[slot.id]
        return value.get(slot.id, floor)

    def why(slot: Slot) -> str:
        if slot.kind is Kind.RECALL:
            return "a recall note, made anew when it is needed"
        if slot.orphan:
            return "a tool result without its call"
        return reason(slot) if slot.id in value else "follows the prompt: oldest first when nothing before it is left"

    return evict_lowest(window, target, score, why)
