"""Like LRU, but a slot is accessed when a later message takes its keywords up again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from policies.greedy import evict_lowest
from policies.mentions import THRESHOLD, mentions, words
from policies.plan import Plan
from policies.registry import register
from policies.types import Context, Need, Slot, Window


@dataclass(frozen=True, slots=True)
class Access:
    """The turn of the last message that took a slot up again (its own, if none did), and how many did."""

    turn: int
    references: int


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class LruToken:
    """Evicts the slots first that later messages took up longest ago, or never.

    A later message takes a slot up when they share more than `threshold` of the larger of their keyword sets.
    """

    name: ClassVar[str] = "lru_token"
    needs: ClassVar[frozenset[Need]] = frozenset()

    threshold: Annotated[
        float, Field(ge=0, lt=1, description="share of the larger keyword set over which a message is a reference")
    ] = THRESHOLD

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict the slots of earliest last access until the target is met."""
        if window.used <= target:
            return Plan(self.name)
        found = accesses(window.slots, self.threshold)
        last = max(slot.turn for slot in window.slots) if window.slots else 0

        def reason(slot: Slot) -> str:
            access = found[slot.id]
            return f"last accessed {last - access.turn} turns ago, referenced {access.references} times"

        return Plan(self.name, evict_lowest(window, target, lambda slot: found[slot.id].turn, reason))


def accesses(slots: Sequence[Slot], threshold: float = THRESHOLD) -> Mapping[str, Access]:
    """The accesses of each evictable slot by id, from the keywords that it shares with later slots."""
    found = [Access(slot.turn, 0) for slot in slots]
    for taking, taken in enumerate(mentions([words(slot.text) for slot in slots], threshold=threshold)):
        for place in taken:
            before = found[place]
            found[place] = Access(max(before.turn, slots[taking].turn), before.references + 1)
    return {slot.id: access for slot, access in zip(slots, found, strict=True) if slot.evictable}
