"""What stays of a window when the most valuable is kept first: values to selection, selection to evictions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

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
    """The slots before the last user message that a policy may keep or let go, and the tokens left for them.

    Neither orphans, which no upstream takes, nor recall notes, which are made anew: they go first. Nor, where turns
    must alternate, a turn that cannot go because the other half of its exchange has to stay.
    """
    before = window.slots[: last_user(window.slots)]
    passing = [slot for slot in before if slot.evictable and (slot.orphan or slot.kind is Kind.RECALL)]
    halves = _halves(window) if window.alternate else {}
    candidates = tuple(
        slot
        for slot in before
        if slot.evictable and slot not in passing and (slot.id not in halves or _free(halves[slot.id]))
    )
    fixed = window.used - sum(slot.tokens for slot in (*passing, *candidates))
    return Room(candidates, max(target - fixed, 0))


def units(window: Window, slots: Iterable[Slot]) -> Iterator[Unit]:
    """The slots in their order, by what goes together: where turns must alternate, question and answer."""
    halves = _halves(window) if window.alternate else {}
    wanted = {slot.id: slot for slot in slots}
    for slot in wanted.values():
        other = halves.get(slot.id)
        if other is None or other.id not in wanted:
            yield (slot,)
        elif slot.role == "user":
            yield (slot, other)


def _halves(window: Window) -> Mapping[str, Slot | None]:
    """For each turn by id the other half of its exchange: the answer that follows a question, and the reverse."""
    turns = [slot for slot in window.slots if is_turn(slot)]
    found: dict[str, Slot | None] = {slot.id: None for slot in turns}
    for one, next_ in pairwise(turns):
        if one.role == "user" and next_.role == "assistant":
            found[one.id], found[next_.id] = next_, one
    return found


def _free(slot: Slot | None) -> bool:
    return slot is not None and slot.evictable


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
