"""The current prompt, the exchange before it, and what is most similar to the prompt; nothing else."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Annotated, ClassVar

from pydantic import Field

from policies.filling import evict_others, units
from policies.plan import Plan
from policies.registry import register
from policies.turns import INSTRUCTIONS, is_turn, last_user
from policies.types import Context, Kind, Need, Slot, Window
from policies.value import similarities

_FOLLOWING = 2  # slots of a tool loop after the prompt that stay: the newest calls, which are being worked on
_EXCHANGE = 10.0  # over any similarity


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Semantic:
    """Keeps the current prompt, the last exchange and the `top_k` slots most similar to the prompt, in their order.

    Everything else before the prompt goes, however little would have to; with two earlier messages or fewer nothing
    goes. Tool slots of the last exchange and those after the prompt go, oldest first, only as far as the target asks.
    Where turns must alternate, a slot stays together with the other half of its exchange; where a user's must be first,
    what would stand before it goes.
    """

    name: ClassVar[str] = "semantic"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SIMILARITY})
    own_zone: ClassVar[bool] = True  # `zone` says what is protected, in place of the route's settings

    top_k: Annotated[int, Field(ge=0, description="how many similar slots stay")] = 2

    def zone(self, window: Window, context: Context) -> frozenset[str]:
        """The ids of the slots that this policy protects by itself."""
        return self._zone(window, _worth(window, context))

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Evict what is outside of the zone, once the target asks for anything at all."""
        if window.used <= target:
            return Plan(self.name)
        worth = _worth(window, context)
        zone = self._zone(window, worth)
        slots = tuple(replace(slot, protected=True) if slot.id in zone else slot for slot in window.slots)
        before = [slot for slot in slots[: last_user(slots)] if slot.evictable]
        exchange = frozenset(slot.id for slot in _exchange(window))
        value = {slot.id: _EXCHANGE + slot.turn if slot.id in exchange else worth[slot.id] for slot in before}
        others = sum(slot.tokens for slot in before if slot.id not in exchange)

        def reason(slot: Slot) -> str:
            if slot.id in exchange:
                return "a tool slot of the last exchange: oldest first when nothing before it is left"
            return f"similarity {worth[slot.id]:.3f}: not among the {self.top_k} most similar"

        seen = replace(window, slots=slots)
        return Plan(self.name, evict_others(seen, min(target, window.used - others), frozenset(), value, {}, reason))

    def _zone(self, window: Window, worth: Mapping[str, float]) -> frozenset[str]:
        prompt = last_user(window.slots)
        following = window.slots[prompt:][:1] + window.slots[prompt + 1 :][-_FOLLOWING:]
        earlier = [slot for slot in window.slots[:prompt] if slot.role not in INSTRUCTIONS]
        if len(earlier) <= 2:
            return frozenset(slot.id for slot in (*earlier, *following))
        last = _exchange(window)
        rivals = [
            slot
            for slot in earlier
            if not slot.pinned and slot not in last and not slot.orphan and slot.kind is not Kind.RECALL
        ]
        rivals.sort(key=lambda slot: (-worth[slot.id], -slot.turn))
        similar = {slot.id for slot in rivals[: self.top_k]}
        kept = {slot.id for unit in units(window, earlier) if any(one.id in similar for one in unit) for slot in unit}
        kept |= {slot.id for slot in last if is_turn(slot)}
        if window.user_first:
            kept -= _opening(earlier, kept)
        return frozenset(kept | {slot.id for slot in following})


def _worth(window: Window, context: Context) -> Mapping[str, float]:
    return similarities(window, context, window.slots[: last_user(window.slots)])


def _opening(earlier: Iterable[Slot], kept: AbstractSet[str]) -> frozenset[str]:
    """Those of the kept slots that would stand before the first user's."""
    left = (slot for slot in earlier if slot.id in kept or not slot.evictable)
    return frozenset(slot.id for slot in takewhile(lambda slot: slot.role != "user", left))


def _exchange(window: Window) -> tuple[Slot, ...]:
    """The last two turns before the prompt, with the tool slots between them and after them."""
    before = window.slots[: last_user(window.slots)]
    turns = [i for i, slot in enumerate(before) if is_turn(slot)]
    start = turns[-2:][0] if turns else len(before)
    return tuple(slot for slot in before[start:] if is_turn(slot) or slot.kind is Kind.TOOL)
