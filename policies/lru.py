"""What was last accessed longest ago goes first."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.registry import register
from policies.turns import Age, ages
from policies.types import Context, Need, Slot, Window


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Lru:
    """Evicts the slots first that were last accessed longest ago; one that never was counts from its own turn.

    In turns, an access belongs to the newest slot that was there at the time. In minutes it is the time itself;
    where times are unknown, turns are used instead.
    """

    name: ClassVar[str] = "lru"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.USES})

    age: Annotated[Age, Field(description="the unit of age: slots that came after the access, or minutes")] = "turns"

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the slots of earliest last access until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        idle, unit = self._idle(window, context)
        evictions = evict_lowest(
            window, target, lambda slot: -idle(slot), lambda slot: f"last accessed {idle(slot):.4g} {unit} ago"
        )
        return Plan(self.name, evictions)

    def _idle(self, window: Window, context: Context) -> tuple[Callable[[Slot], float], Age]:
        """How long ago a slot was last accessed, and in which unit."""
        created, unit = ages(window, context, self.age)
        if unit == "minutes" and context.now is not None:
            now = context.now
            access = {s.id: (now - s.last_accessed_at) / 60 for s in window.slots if s.last_accessed_at is not None}
            return lambda slot: max(min(access.get(slot.id, created[slot.id]), created[slot.id]), 0.0), unit
        seen = sorted((slot.created_at, slot.turn) for slot in window.slots if slot.created_at is not None)
        times = [time for time, _ in seen]
        last = max((slot.turn for slot in window.slots), default=0)

        def turns(slot: Slot) -> float:
            if slot.last_accessed_at is None or not (there := bisect_right(times, slot.last_accessed_at)):
                return created[slot.id]
            return min(created[slot.id], float(last - seen[there - 1][1]))

        return turns, unit
