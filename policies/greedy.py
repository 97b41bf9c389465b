"""Evicting what scores lowest: the arithmetic, pins, protection and order of turns that every ranking shares."""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping

from policies.errors import PolicyError
from policies.plan import Evict
from policies.turns import INSTRUCTIONS, is_turn, last_user, opens_with_user
from policies.types import Slot, Window


def evict_lowest(
    window: Window,
    target: int,
    score: Callable[[Slot], float] | Mapping[str, float],
    reason: Callable[[Slot], str] | str,
) -> tuple[Evict, ...]:
    """Evictions, in order, until `window.used` is at most `target` tokens, or as near as the rules allow.

    First go orphans, then the slots before the last user message from the lowest score up (ties: older, then
    larger, first), then the slots after it, oldest first whatever they score. Pinned and protected slots stay.

    Where turns must alternate, a turn goes only with a neighbouring turn of the other role: a question with the
    answer that follows, an answer with the question before it. Only when no such exchange is left before the last
    user message, a turn goes with its neighbour on the other side, which pairs a question with another's answer. A
    turn without either stays until it gets a neighbour that may go. Where a user's must be first, what would stand
    before the next user message goes with the one that was first; if any of it may not go, that one stays too.

    `score` and `reason` are asked once for each evictable slot, or are looked up by slot id. Raises PolicyError for
    a score that is not a number.
    """
    if window.used <= target:
        return ()
    rank = score if callable(score) else _looked_up(score)
    scores = {i: _number(rank(slot), slot) for i, slot in enumerate(window.slots) if slot.evictable}
    order = _order(window, scores)
    heap = [(key, i) for i, key in order.items()]
    heapq.heapify(heap)
    waiting: set[int] = set()
    line = _Line(window)
    evictions: list[Evict] = []
    used = window.used

    def go(i: int, why: str | None) -> None:
        nonlocal used
        slot = window.slots[i]
        own = reason if isinstance(reason, str) else reason(slot)
        evictions.append(Evict(slot.id, scores[i], f"{own}; {why}" if why else own))
        used -= slot.tokens
        for neighbour in line.remove(i):
            if neighbour in waiting:
                waiting.discard(neighbour)
                heapq.heappush(heap, (order[neighbour], neighbour))

    for i in line.opening():
        go(i, _FIRST)
    while heap and used > target:
        key, i = heapq.heappop(heap)
        if not line.standing[i]:
            continue
        tier = key[0]
        if step := line.step(i, across=tier >= _ACROSS):
            for j, why in step:
                go(j, why)
        elif tier < _ACROSS:
            heapq.heappush(heap, ((_ACROSS, *key[1:]), i))
        else:
            waiting.add(i)
    return tuple(evictions)


_PAIR = "taken along so that turns alternate"
_FIRST = "taken along so that a user's message is first"

_Key = tuple[int, float, int, int]
_ORPHANS, _RANKED, _ACROSS, _LATEST = range(4)


def _looked_up(scores: Mapping[str, float]) -> Callable[[Slot], float]:
    return lambda slot: scores[slot.id]


def _number(score: float, slot: Slot) -> float:
    if math.isnan(score):
        raise PolicyError(f"score of slot {slot.id!r}: must be a number, got nan")
    return score


def _order(window: Window, scores: Mapping[int, float]) -> dict[int, _Key]:
    """For each evictable slot's place the key to sort by: tier, score, age, size."""
    last = last_user(window.slots)

    found: dict[int, _Key] = {}
    for i, score in scores.items():
        slot = window.slots[i]
        if slot.orphan:
            found[i] = (_ORPHANS, 0.0, slot.turn, -slot.tokens)
        elif i >= last:
            found[i] = (_LATEST, 0.0, slot.turn, -slot.tokens)
        else:
            found[i] = (_RANKED, score, slot.turn, -slot.tokens)
    return found


class _Line:
    """The slots still standing, by place, and what has to go together as they thin out."""

    def __init__(self, window: Window) -> None:
        self.slots = window.slots
        self.standing = bytearray(b"\x01" * len(window.slots))
        self.free = [not (slot.pinned or slot.protected) for slot in window.slots]
        self.user_first = window.user_first
        self.head = 0
        self._advance()
        turns = [i for i, slot in enumerate(window.slots) if is_turn(slot)] if window.alternate else []
        self.before: dict[int, int | None] = dict(zip(turns, [None, *turns], strict=False))
        self.after: dict[int, int | None] = dict(zip(turns, [*turns[1:], None], strict=False))

    def opening(self) -> tuple[int, ...]:
        """What must go before all else so that a user's is first; where it may not, the rule cannot be held."""
        if not self.user_first or opens_with_user(self.slots):
            return ()
        lead = self._lead(())
        self.user_first = lead is not None
        return lead or ()

    def step(self, i: int, across: bool) -> tuple[tuple[int, str | None], ...] | None:
        """The slot at `i` and what has to go with it, each with the reason; None where it has to stay for now.

        A turn goes with its own exchange or, `across`, with the neighbour on the other side.
        """
        if i not in self.before and not (self.user_first and self.head == i):  # nothing hangs on it
            return ((i, None),)
        for pair in self._pairs(i, across):
            lead = self._lead(pair) if self.user_first and self.head in pair else ()
            if lead is not None:
                return ((i, None), *((j, _PAIR) for j in pair[1:]), *((j, _FIRST) for j in lead))
        return None

    def remove(self, i: int) -> tuple[int, ...]:
        """Take the slot at `i` out; gives the turns that have become neighbours."""
        self.standing[i] = 0
        if i == self.head:
            self._advance()
        if i not in self.before:
            return ()
        before, after = self.before.pop(i), self.after.pop(i)
        if before is not None:
            self.after[before] = after
        if after is not None:
            self.before[after] = before
        return tuple(j for j in (before, after) if j is not None)

    def _pairs(self, i: int, across: bool) -> Iterator[tuple[int, ...]]:
        if i not in self.before:
            yield (i,)
            return
        role = self.slots[i].role
        nearest = (self.after[i], self.before[i]) if role == "user" else (self.before[i], self.after[i])
        for j in nearest if across else nearest[:1]:
            if j is not None and self.free[j] and self.slots[j].role != role:
                yield (i, j)

    def _lead(self, leaving: tuple[int, ...]) -> tuple[int, ...] | None:
        """What would stand before the first user message once `leaving` is gone; None where some of it may not go."""
        lead: list[int] = []
        for i in range(self.head, len(self.slots)):
            slot = self.slots[i]
            if not self.standing[i] or i in leaving or slot.role in INSTRUCTIONS:
                continue
            if slot.role == "user":
                break
            if not self.free[i]:
                return None
            lead.append(i)
        return tuple(lead)

    def _advance(self) -> None:
        while self.head < len(self.slots) and not (
            self.standing[self.head] and self.slots[self.head].role not in INSTRUCTIONS
        ):
            self.head += 1
