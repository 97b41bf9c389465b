"""Tool groups of the current turn that need not go: evicted oldest first, they leave more room than was asked for."""

from collections.abc import Sequence

from policies.identifiers import standing
from policies.plan import Action, Evict, Plan
from policies.plan import apply as applied
from policies.turns import last_user
from policies.types import Context, Kind, Slot, Window

SIZE = 0.75  # how much a slot's size counts against it: 0 not at all, 1 as much as what it is worth counts for it


def reprieve(plan: Plan, window: Window, target: int, context: Context) -> Plan:
    """The plan without the evictions after the last user message that the target does not ask for after all.

    What is still spoken of stays first, for its size, as far as there is room.
    """
    gone = {action.slot for action in plan.actions if isinstance(action, Evict)}
    late = [slot for slot in window.slots[last_user(window.slots) :] if slot.id in gone and _free(slot)]
    room = target - applied(plan, window, context.count).used if late else 0
    if room < min((slot.tokens for slot in late), default=1):
        return plan
    stays = _fitting(late, window.slots, room)
    return Plan(plan.policy, tuple(action for action in plan.actions if not _evicts(action, stays)))


def _free(slot: Slot) -> bool:
    """Whether it can stand anywhere: an orphan cannot, and a turn only where the order of turns allows it."""
    return slot.kind is Kind.TOOL and not slot.orphan


def _fitting(late: Sequence[Slot], slots: Sequence[Slot], room: int) -> frozenset[str]:
    small = {slot.id: slot for slot in late if slot.tokens <= room}
    worth = standing(slots, small)
    kept = set()
    for slot in sorted(small.values(), key=lambda slot: (-worth[slot.id] / slot.tokens**SIZE, -slot.turn)):
        if slot.tokens <= room:
            kept.add(slot.id)
            room -= slot.tokens
    return frozenset(kept)


def _evicts(action: Action, ids: frozenset[str]) -> bool:
    return isinstance(action, Evict) and action.slot in ids
