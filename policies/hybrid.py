"""Cheap where little has to go, and by meaning where much has to: what matters to the prompt stays."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from policies.clusters import clustered
from policies.condense import affordable, condense
from policies.filling import Room, Unit, evict_others, left, room, select, units
from policies.plan import Plan
from policies.priority import Priority
from policies.registry import register
from policies.reprieve import reprieve
from policies.types import Context, Need, Slot, Window
from policies.value import similarities

SIZE = 0.25  # how much of its value a slot loses that alone would take all the room there is


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Evicts by `priority` where the prompt is over its target by less than `slow_from` of the budget.

    Otherwise it keeps, as far as there is room, the newest slot of each cluster of meaning in a share `newest` of it,
    and in the rest the slots most relevant to the current prompt; a slot counts for less the more of the room it takes.
    A share `summaries` is kept free for what stands for the rest of a cluster. Where that is not enough, or nothing
    tells the slots apart, `priority` decides again. Of the tool groups after the prompt, which go last and oldest
    first, the slow path lets those stay that there is room for after all, what is still spoken of first.

    What users say is short beside what tools return, and carries what they want. Where a prompt is too short for a
    provider to cache it, so that nothing is gained by what stands first, the newest of a user's own messages are
    protected before the policy is asked, up to a share `keep_said` of the budget.
    """

    name: ClassVar[str] = "hybrid"

    slow_from: Annotated[float, Field(ge=0, le=1, description="overflow, as a share of the budget")] = 0.20
    newest: Annotated[float, Field(ge=0, le=1, description="share of the room for the newest of each cluster")] = 0.02
    summaries: Annotated[float, Field(ge=0, le=1, description="share of the room kept free for summaries")] = 0.02
    max_clusters: Annotated[int, Field(ge=1, description="the most clusters that are made for a request")] = 64
    keep_said: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="share of the budget that the user's own messages keep, in prompts too short to cache",
        ),
    ] = 0.25

    @property
    def needs(self) -> frozenset[Need]:
        """What either path uses."""
        found = {Need.USES, Need.SIMILARITY, Need.VECTORS}
        return frozenset(found | {Need.SUMMARIES} if self.summaries else found)

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict by priority, or by relevance and cluster, until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        plan = self._evicting(window, target, context)
        return reprieve(plan, window, target, context) if context.overflow >= self.slow_from else plan

    def _evicting(self, window: Window, target: int, context: Context) -> Plan:
        free = room(window, target)
        worth = similarities(window, context, free.candidates) if context.overflow >= self.slow_from else {}
        if not any(worth.values()):
            return replace(Priority().plan(window, target, context), policy=self.name)
        return self._by_meaning(window, target, context, free, worth)

    def clusters(self, window: Window, target: int, context: Context) -> Mapping[str, int]:
        """The clusters that the slow path would use."""
        return self._clusters(room(window, target), context, quick=False)

    def _by_meaning(
        self, window: Window, target: int, context: Context, free: Room, worth: Mapping[str, float]
    ) -> Plan:
        reserve = affordable(int(self.summaries * free.tokens), context.summary_tokens)
        tokens = free.tokens - reserve
        share = int(self.newest * tokens)
        clusters = self._clusters(free, context, quick=True)
        groups = list(units(window, free.candidates))
        value = {slot.id: _value(unit, worth, free.tokens) for unit in groups for slot in unit}
        ranked = sorted(groups, key=lambda unit: (-value[unit[0].id], -unit[-1].turn))
        latest = frozenset({clusters[slot.id]: slot.id for slot in free.candidates if clusters}.values())
        newest = [unit for unit in ranked if any(slot.id in latest for slot in unit)]
        kept = select(newest, share)
        taken = sum(slot.tokens for slot in free.candidates if slot.id in kept)
        kept |= select((unit for unit in ranked if unit[0].id not in kept), tokens - taken)
        again = Priority().scores(window, context, (slot for slot in free.candidates if slot.id in kept))

        def reason(slot: Slot) -> str:
            place = f", cluster {clusters[slot.id]}" if slot.id in clusters else ""
            rank = f", priority {again[slot.id]:.1f}" if slot.id in again else ""
            return f"relevance {worth[slot.id]:.3f} for {slot.tokens} tokens{place}{rank}"

        evictions = evict_others(window, target - reserve, kept, value, again, reason)
        spare = min(target - left(window, evictions), reserve)
        return Plan(self.name, condense(evictions, clusters, window, spare, context.summary_tokens))

    def _clusters(self, free: Room, context: Context, *, quick: bool) -> Mapping[str, int]:
        """As many clusters as slots of the usual size fit into the room; none where nothing would come of them."""
        reserve = affordable(int(self.summaries * free.tokens), context.summary_tokens)
        tokens, slots = free.tokens - reserve, free.candidates
        if not slots or (not reserve and int(self.newest * tokens) < min(slot.tokens for slot in slots)):
            return {}
        mean = sum(slot.tokens for slot in slots) / len(slots)
        k = max(1, min(self.max_clusters, len(slots), round(tokens / max(mean, 1.0))))
        return clustered(slots, k, context.vectors, quick=quick)


def _value(unit: Unit, worth: Mapping[str, float], tokens: int) -> float:
    """The relevance of the best in a unit, less what its size takes from others."""
    if len(unit) == 1:
        (slot,) = unit
        return worth[slot.id] - SIZE * slot.tokens / max(tokens, 1)
    return max(worth[slot.id] for slot in unit) - SIZE * sum(slot.tokens for slot in unit) / max(tokens, 1)
