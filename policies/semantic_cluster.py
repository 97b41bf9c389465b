"""What is said again and again is said once: of each cluster the newest stays, a summary stands for the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from policies.clusters import AHEAD, clustered, wanted
from policies.condense import affordable, condense
from policies.filling import Room, evict_others, left, room, select, units
from policies.plan import Plan
from policies.registry import register
from policies.types import Context, Need, Slot, Window


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticCluster:
    """Groups the evictable slots by meaning (k-means, k = target ÷ mean tokens) and keeps the newest of each group.

    The rest of a group becomes one summary at the place of its oldest slot; groups for which there is no room, or
    where no summaries can be written, go without. Where `max_clusters` makes the groups fewer than the slots that fit,
    each keeps its newest several, in turns, as long as there is room.
    """

    name: ClassVar[str] = "semantic_cluster"
    # Clusters are of the history alone, so a plan could be made ahead; but recall follows it and reads the prompt.
    reads_prompt: ClassVar[bool] = True

    max_clusters: Annotated[int, Field(ge=1, description="the most clusters that are made for a request")] = 64
    summaries: Annotated[float, Field(ge=0, le=1, description="share of the room kept free for summaries")] = 0.15

    @property
    def needs(self) -> frozenset[Need]:
        """Vectors; and summaries, with the references that they inherit, unless the options leave no room for them."""
        return frozenset({Need.VECTORS, Need.SUMMARIES, Need.USES} if self.summaries else {Need.VECTORS})

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Summarise and evict what newer slots of its cluster stand for, until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        free = room(window, target)
        clusters = self._clusters(free, target, context, self.max_clusters, quick=True)
        newer = _newer(free, clusters)
        reserve = affordable(int(self.summaries * free.tokens), context.summary_tokens)
        groups = list(units(window, free.candidates))
        groups.sort(key=lambda unit: (min(newer[slot.id] for slot in unit), -unit[-1].turn))
        kept = select(groups, free.tokens - reserve)
        value = {slot.id: -float(min(newer[one.id] for one in unit)) for unit in groups for slot in unit}

        age = {slot.id: float(slot.turn) for slot in free.candidates}

        def reason(slot: Slot) -> str:
            return f"cluster {clusters[slot.id]}: {newer[slot.id]} newer slots of it"

        evictions = evict_others(window, target - reserve, kept, value, age, reason)
        spare = min(target - left(window, evictions), reserve)
        return Plan(self.name, condense(evictions, clusters, window, spare, context.summary_tokens))

    def clusters(self, window: Window, target: int, context: Context) -> Mapping[str, int]:
        """The clusters of the slots that may go, as many as fit: `max_clusters` is for those that are waited for."""
        return self._clusters(room(window, target), target, context, AHEAD, quick=False)

    def _clusters(self, free: Room, target: int, context: Context, at_most: int, *, quick: bool) -> dict[str, int]:
        return clustered(free.candidates, wanted(free.candidates, target, at_most), context.vectors, quick=quick)


def _newer(free: Room, clusters: dict[str, int]) -> dict[str, int]:
    """For each slot by id how many newer ones its cluster has."""
    seen: dict[int, int] = {}
    found: dict[str, int] = {}
    for slot in reversed(free.candidates):
        cluster = clusters[slot.id]
        found[slot.id] = seen.get(cluster, 0)
        seen[cluster] = found[slot.id] + 1
    return found
