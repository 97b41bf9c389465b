"""Recency-weighted relevance whose weights follow the conversation: back into it, or on from the last turn."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from policies.plan import Evict, Plan
from policies.registry import register
from policies.rwr import Rwr
from policies.turns import INSTRUCTIONS, Age, last_user
from policies.types import Context, Kind, Need, Window
from policies.value import similarities


@dataclass(frozen=True, slots=True)
class Weights:
    """Alpha and beta as used for one decision, which sum to 1, and why they are what they are."""

    alpha: float
    beta: float
    why: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Evicts the lowest α·recency + β·relevance first, with weights that move with the task.

    β = `beta` + `swing` · (old - new), held between `least` and 1 - `least`, and α = 1 - β. `new` is how similar the
    prompt is to the nearest of the `latest` slots before it, `old` to the nearest of those before them, 0..1. So a
    prompt that points back into the conversation makes relevance count for more, and one that goes on from the last
    turn makes recency count for more. With nothing older than the latest slots the weights are the base ones.
    """

    name: ClassVar[str] = "adaptive"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SIMILARITY})

    beta: Annotated[float, Field(ge=0, le=1, description="weight of relevance where the prompt points nowhere")] = 0.4
    swing: Annotated[float, Field(ge=0, le=1, description="the most that the prompt moves the weight")] = 0.4
    least: Annotated[float, Field(ge=0, le=0.5, description="the least that either weight becomes")] = 0.1
    latest: Annotated[int, Field(ge=1, description="how many slots before the prompt are its last turns")] = 4
    recency: Annotated[
        Literal["reciprocal", "exponential"], Field(description="1 / (age + 1), or e^(-decay * age)")
    ] = "reciprocal"
    decay: Annotated[float, Field(ge=0, description="how fast exponential recency fades, per unit of age")] = 0.02
    age: Annotated[Age, Field(description="the unit of age: slots that came after, or minutes")] = "turns"

    def weights(self, window: Window, context: Context) -> Weights:
        """The weights for the current prompt."""
        before = [
            slot
            for slot in window.slots[: last_user(window.slots)]
            if slot.role not in INSTRUCTIONS and slot.kind in (Kind.DIALOGUE, Kind.TOOL)
        ]
        worth = similarities(window, context, before)
        new = max((worth[slot.id] for slot in before[-self.latest :]), default=0.0)
        old = max((worth[slot.id] for slot in before[: -self.latest]), default=None)
        if old is None or not any(worth.values()):
            return self._between(self.beta, "nothing tells where the prompt points")
        way = "points back" if old > new else "goes on from the last turn"
        why = f"the prompt {way} (similarity {new:.2f} to the latest {self.latest}, {old:.2f} to older)"
        return self._between(self.beta + self.swing * (old - new), why)

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the slots of lowest score until the target is met; each reason ends with the weights and their why."""
        if window.used <= target:
            return Plan(self.name)
        used = self.weights(window, context)
        note = f"alpha {used.alpha:.2f}, beta {used.beta:.2f}: {used.why}"
        ranking = Rwr(alpha=used.alpha, beta=used.beta, recency=self.recency, decay=self.decay, age=self.age)
        actions = ranking.plan(window, target, context).actions
        return Plan(
            self.name,
            tuple(replace(one, reason=f"{one.reason}; {note}") for one in actions if isinstance(one, Evict)),
        )

    def _between(self, beta: float, why: str) -> Weights:
        held = min(max(beta, self.least), 1 - self.least)
        return Weights(1 - held, held, why)
