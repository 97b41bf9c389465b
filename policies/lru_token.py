"""Like LRU, but a slot is accessed when a later message takes its keywords up again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from policies.greedy import evict_lowest
from policies.keywords import keywords
from policies.plan import Plan
from policies.registry import register
from policies.types import Context, Need, Slot, Window

BLOCK = 64  # slots that are compared with all others at a time: bounds the memory
SPARSE = 8  # a table is made where one in so many pairs shares a word
COMMON = 5_000  # slots beyond which a word tells nothing any more: all pairs that it makes would cost too much

Numbers = NDArray[np.intp]


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
    sizes = np.array([len(words) for words in sets], dtype=np.intp)
    enough = np.floor(threshold * sizes).astype(np.intp)
    numbers: dict[str, int] = {}
    said = np.array([numbers.setdefault(word, len(numbers)) for words in sets for word in words], dtype=np.intp)
    by_word = np.argsort(said, kind="stable")
    after = np.empty(len(said), dtype=np.intp)  # where in `holders` the later slots begin that say the same word
    after[by_word] = np.arange(1, len(said) + 1)
    holding = np.bincount(said, minlength=len(numbers))
    more = np.cumsum(holding)[said] - after if len(said) else after
    if len(said):
        more[holding[said] > COMMON] = 0
    holder = np.repeat(np.arange(len(slots)), sizes)
    holders = holder[by_word]
    places = np.concatenate([[0], np.cumsum(sizes)])
    found: dict[str, Access] = {}
    for start in range(0, len(slots), BLOCK):
        stop = min(start + BLOCK, len(slots))
        block = slice(places[start], places[stop])
        lengths = more[block]
        # Every pair of a slot in the block and a later one that has one of its words, once for each word.
        first = np.repeat(after[block] - np.cumsum(lengths) + lengths, lengths)
        others = holders[first + np.arange(len(first))]
        ones = np.repeat(holder[block] - start, lengths)
        references, last = _taken_up(ones, others, stop - start, len(slots), enough, start)
        for slot, n, by in zip(slots[start:stop], references.tolist(), last.tolist(), strict=True):
            if slot.evictable:
                found[slot.id] = Access(max(slot.turn, slots[by].turn) if n else slot.turn, n)
    return found


def _taken_up(
    ones: Numbers, others: Numbers, rows: int, columns: int, enough: Numbers, start: int
) -> tuple[Numbers, Numbers]:
    """How many later slots take each of a block's slots up, and which is the last; each pair stands once a shared word.

    A table of all pairs where many share a word, a sort of those that do where few: else a long conversation of short
    messages would cost its length squared.
    """
    if len(ones) * SPARSE > rows * columns:
        shared = np.bincount(ones * columns + others, minlength=rows * columns).reshape(rows, columns)
        taken_up = shared > np.maximum(enough[start : start + rows, None], enough)
        return taken_up.sum(axis=1), columns - 1 - taken_up[:, ::-1].argmax(axis=1)
    pairs, shared = np.unique(ones * columns + others, return_counts=True)
    ones, others = np.divmod(pairs, columns)
    taken = shared > np.maximum(enough[start + ones], enough[others])
    last = np.zeros(rows, dtype=np.intp)
    np.maximum.at(last, ones[taken], others[taken])
    return np.bincount(ones[taken], minlength=rows), last
