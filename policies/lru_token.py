"""Like LRU, but a slot is accessed when a later message takes its keywords up again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from policies.greedy import evict_lowest
from policies.keywords import keywords
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
    ] = 0.3

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


def accesses(slots: Sequence[Slot], threshold: float = 0.3) -> Mapping[str, Access]:
    """The accesses of each evictable slot by id, from the keywords that it shares with later slots."""
    sets = [keywords(slot.text) for slot in slots]
    holders: dict[str, list[int]] = {}
    for i, words in enumerate(sets):
        for word in words:
            holders.setdefault(word, []).append(i)
    # A word that one slot alone has is shared with none; what is left is looked up once per slot.
    index = {word: np.array(places, dtype=np.intp) for word, places in holders.items() if len(places) > 1}
    sizes = np.array([len(words) for words in sets])
    found: dict[str, Access] = {}
    for i, slot in enumerate(slots):
        if not slot.evictable:
            continue
        places = [index[word] for word in sets[i] if word in index]
        turn, references = slot.turn, 0
        if places:
            shared = np.bincount(np.concatenate(places), minlength=len(slots))[i + 1 :]
            later = i + 1 + np.flatnonzero(shared > threshold * np.maximum(sizes[i + 1 :], sizes[i]))
            if references := len(later):
                turn = max(slot.turn, slots[later[-1]].turn)
        found[slot.id] = Access(turn, references)
    return found
