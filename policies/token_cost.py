"""What is worth least for each token that it costs goes first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.registry import register
from policies.types import Context, Need, Slot, Window
from policies.value import Relevance, needs, values


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCost:
    """Evicts the lowest value ÷ tokens first; with `relevance: none` every slot is worth 1, so the largest go first.

    With a `threshold`, the slots worth less than it go before all others, the largest first.
    """

    name: ClassVar[str] = "token_cost"

    relevance: Annotated[
        Relevance | Literal["none"],
        Field(description="value by similarity to the prompt, shared keywords, own priority, rated, or 1 for all"),
    ] = "similarity"
    threshold: Annotated[float | None, Field(ge=0, le=1, description="value under which slots go by size alone")] = None

    @property
    def needs(self) -> frozenset[Need]:
        """Similarity, where the options measure value by it."""
        return needs(self.relevance)

    @property
    def reads_prompt(self) -> bool:
        """Whether value is relevance to the current prompt."""
        return self.relevance not in ("tags", "none")

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the slots of least value for a token until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        worth: Mapping[str, float] = {slot.id: 1.0 for slot in window.slots}
        if self.relevance != "none":
            worth = values(window, context, self.relevance)

        def cheap(slot: Slot) -> bool:
            return self.threshold is not None and worth[slot.id] < self.threshold

        def score(slot: Slot) -> float:
            return -float(slot.tokens) if cheap(slot) else worth[slot.id] / max(slot.tokens, 1)

        def reason(slot: Slot) -> str:
            under = f", under {self.threshold:g}: largest first" if cheap(slot) else ""
            return f"value {worth[slot.id]:.3f} for {slot.tokens} tokens{under}"

        return Plan(self.name, evict_lowest(window, target, score, reason))
