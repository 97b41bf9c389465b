"""Recency-weighted relevance: a slot stays for being new, or for mattering to the current prompt."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.registry import register
from policies.turns import Age, ages
from policies.types import Context, Need, Slot, Window
from policies.value import Relevance, needs, values


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Rwr:
    """Evicts the lowest α·recency + β·relevance first.

    Recency is 1 ÷ (age + 1) or e^(-decay·age). Weights that do not sum to 1 are scaled so that they do.
    """

    name: ClassVar[str] = "rwr"

    alpha: Annotated[float, Field(ge=0, le=1, description="weight of recency")] = 0.6
    beta: Annotated[float, Field(ge=0, le=1, description="weight of relevance")] = 0.4
    recency: Annotated[
        Literal["reciprocal", "exponential"], Field(description="1 / (age + 1), or e^(-decay * age)")
    ] = "reciprocal"
    decay: Annotated[float, Field(ge=0, description="how fast exponential recency fades, per unit of age")] = 0.02
    age: Annotated[Age, Field(description="the unit of age: slots that came after, or minutes")] = "turns"
    relevance: Annotated[
        Relevance, Field(description="similarity to the prompt, shared keywords, the slots' own priority, or rated")
    ] = "similarity"

    def __post_init__(self) -> None:
        if self.alpha + self.beta <= 0:
            raise ValueError(f"alpha: must be over 0 where beta is 0, got {self.alpha:g}")

    @property
    def needs(self) -> frozenset[Need]:
        """Similarity, where the options measure relevance by it."""
        return needs(self.relevance)

    @property
    def reads_prompt(self) -> bool:
        """Whether relevance is to the current prompt."""
        return self.relevance != "tags"

    @property
    def normalised(self) -> bool:
        """Whether the weights given do not sum to 1, so that others are used in their place."""
        return not math.isclose(self.alpha + self.beta, 1.0)

    @property
    def weights(self) -> tuple[float, float]:
        """Alpha and beta as used: they sum to 1."""
        total = self.alpha + self.beta
        return self.alpha / total, self.beta / total

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the slots of lowest score until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        age, _ = ages(window, context, self.age)
        worth = values(window, context, self.relevance)
        alpha, beta = self.weights

        def parts(slot: Slot) -> tuple[float, float]:
            return alpha * self._recency(age[slot.id]), beta * worth[slot.id]

        def reason(slot: Slot) -> str:
            recency, relevance = parts(slot)
            return f"score {recency + relevance:.3f}: recency {recency:.3f} + relevance {relevance:.3f}"

        return Plan(self.name, evict_lowest(window, target, lambda slot: sum(parts(slot)), reason))

    def _recency(self, age: float) -> float:
        return 1.0 / (age + 1.0) if self.recency == "reciprocal" else math.exp(-self.decay * age)
