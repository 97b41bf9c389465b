"""The baseline: what came first goes first."""

from dataclasses import dataclass
from typing import ClassVar

from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.registry import register
from policies.types import Context, Need, Window


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """Evicts the oldest slots first. Its scores are the slots' turns."""

    name: ClassVar[str] = "fifo"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the oldest slots until the target is met."""
        return Plan(self.name, evict_lowest(window, target, lambda slot: slot.turn, "oldest first"))
