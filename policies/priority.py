"""A score of role, age, references and length; what scores lowest goes first."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.registry import register
from policies.turns import Age, ages
from policies.types import Context, Kind, Need, Slot, Window

_UNKNOWN_ROLE = 50.0


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """Evicts the lowest score first: role weight + 100·e^(-decay·age) + references - length + the slot's priority.

    References give `reference_bonus` each, at most `reference_cap`; a slot of more than `long_tokens` tokens loses
    5·ln(tokens / long_tokens). A tool group weighs what `tool` weighs, a role without a weight 50.
    """

    name: ClassVar[str] = "priority"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.USES})

    decay: Annotated[float, Field(ge=0, description="how fast recency fades, per unit of age")] = 0.02
    age: Annotated[Age, Field(description="the unit of age: slots that came after, or minutes")] = "turns"
    system: Annotated[float, Field(description="weight of system and developer messages")] = 100.0
    user: Annotated[float, Field(description="weight of user messages")] = 60.0
    assistant: Annotated[float, Field(description="weight of assistant messages")] = 40.0
    tool: Annotated[float, Field(description="weight of tool groups")] = 30.0
    reference_bonus: Annotated[float, Field(ge=0, description="points for each later reference")] = 10.0
    reference_cap: Annotated[float, Field(ge=0, description="the most that references give")] = 40.0
    long_tokens: Annotated[int, Field(ge=1, description="tokens from which a slot counts as long")] = 500

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the slots of lowest score until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        parts = self._all(window, context, window.slots)
        scores = {id_: sum(values) for id_, values in parts.items()}
        return Plan(self.name, evict_lowest(window, target, scores, lambda slot: _reason(slot, parts[slot.id])))

    def scores(self, window: Window, context: Context, slots: Iterable[Slot]) -> dict[str, float]:
        """The score of each of these slots of the window by id."""
        return {id_: sum(values) for id_, values in self._all(window, context, slots).items()}

    def _all(
        self, window: Window, context: Context, slots: Iterable[Slot]
    ) -> dict[str, tuple[float, float, float, float, float]]:
        age, _ = ages(window, context, self.age)
        return {slot.id: self._parts(slot, age.get(slot.id, 0.0)) for slot in slots}

    def _parts(self, slot: Slot, age: float) -> tuple[float, float, float, float, float]:
        long = slot.tokens > self.long_tokens
        return (
            self._weight(slot),
            100.0 * math.exp(-self.decay * age),
            min(slot.reference_count * self.reference_bonus, self.reference_cap),
            -5.0 * math.log(slot.tokens / self.long_tokens) if long else 0.0,
            float(slot.priority),
        )

    def _weight(self, slot: Slot) -> float:
        weights = {
            "system": self.system,
            "developer": self.system,
            "user": self.user,
            "assistant": self.assistant,
            "tool": self.tool,
            "function": self.tool,
        }
        return self.tool if slot.kind is Kind.TOOL else weights.get(slot.role, _UNKNOWN_ROLE)


def _reason(slot: Slot, parts: tuple[float, float, float, float, float]) -> str:
    role = "tool" if slot.kind is Kind.TOOL else slot.role
    weight, recency, references, length, priority = parts
    return (
        f"score {sum(parts):.1f}: {role} {weight:g} + recency {recency:.1f} + references {references:g}"
        f" - length {0.0 - length:.1f} + priority {priority:g}"
    )
