"""Which slots a cut leaves alone: the oldest, for the provider's cache, and what the user said. (pure)"""

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import accumulate, pairwise, takewhile

from policies.turns import is_turn
from policies.types import Slot, Window


def keep(
    slots: Sequence[Slot],
    tokens: float,
    *,
    target: float,
    limit: float = 0,
    overhead: int = 0,
    marked: Set[str] = frozenset(),
    alternate: bool = False,
) -> list[Slot]:
    """The slots with the oldest protected: as many as sum to `tokens`, and all up to the last of the `marked`.

    Fewer where a cut to `target` tokens could not be made beside them, `overhead` included: it would come again all
    the sooner. Within `limit` tokens the border of a slot that is nearest to the target will do: what would stay
    instead is newer, and stands where nothing is cached any more.

    Of the `marked` (ids of slots with a client's cache marker) those in the older half of the prompt count, the newer
    ones move on with every turn; if they cannot all stay, they count for nothing. Where turns `alternate` they go in
    pairs, so an even number of them is left to go.
    """
    sizes = [slot.tokens for slot in slots]
    evictable = [0 if slot.pinned or slot.protected else size for slot, size in zip(slots, sizes, strict=True)]
    fixed = overhead + sum(sizes) - sum(evictable)
    spare, most = target - fixed, max(target, limit) - fixed
    sums, costs = list(accumulate(sizes)), list(accumulate(evictable))

    def fits(i: int) -> bool:
        half = evictable[i] / 2
        return costs[i] <= spare or (costs[i] - half <= spare and costs[i] <= most)

    oldest = sum(1 for _ in takewhile(lambda i: sums[i] <= tokens and fits(i), range(len(slots))))
    places = [i for i, slot in enumerate(slots) if slot.id in marked] if marked else []
    older = (i for i in places if 2 * sums[i] <= sums[-1] and costs[i] <= spare)
    end = max(oldest, 1 + max(older, default=-1))
    if alternate:
        turns = [i for i, slot in enumerate(slots) if slot.evictable and is_turn(slot)]
        before = [i for i in turns if i < end]
        if before and (len(turns) - len(before)) % 2:
            end = before[-1]
    return [*(replace(slot, protected=True) if slot.evictable else slot for slot in slots[:end]), *slots[end:]]


def keep_said(window: Window, tokens: float, most: int) -> Window:
    """The window with the user's own messages protected, the newest first, as many as sum to `tokens`.

    Fewer where they and what may not go either would be more than `most` tokens. Where turns must alternate, a message
    counts, and stays, with its answer.
    """
    left = min(tokens, most - window.overhead - sum(slot.tokens for slot in window.slots if not slot.evictable))
    turns = [slot for slot in window.slots if is_turn(slot)]
    answers = {one.id: next_ for one, next_ in pairwise(turns) if window.alternate and next_.role == "assistant"}
    said = [slot for slot in window.slots if slot.evictable and slot.role == "user"]
    kept: set[str] = set()
    for slot in reversed(said):
        answer = answers.get(slot.id)
        stays = [slot, answer] if answer is not None and answer.evictable else [slot]
        size = sum(each.tokens for each in stays)
        if size <= left:
            kept.update(each.id for each in stays)
            left -= size
    return replace(window, slots=tuple(replace(s, protected=True) if s.id in kept else s for s in window.slots))
