"""Which slots are turns, and what the order of turns asks for: alternation, whose turn is first, and age.

A turn is a dialogue slot of a user or an assistant. System and developer messages, tool groups, summaries and
recall notes stand between turns without counting: chat templates that want alternation leave tool calls out, and
notes are merged into the turn that follows them.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from policies.types import Context, Kind, Slot, Window

Age = Literal["turns", "minutes"]

INSTRUCTIONS = frozenset({"system", "developer"})


def is_turn(slot: Slot) -> bool:
    """Whether the slot counts where user and assistant must alternate."""
    return slot.kind is Kind.DIALOGUE and slot.role in ("user", "assistant")


def breaks(slots: Iterable[Slot]) -> int:
    """How many times two turns of the same role follow each other."""
    roles = [slot.role for slot in slots if is_turn(slot)]
    return sum(one == other for one, other in pairwise(roles))


def opens_with_user(slots: Iterable[Slot]) -> bool:
    """Whether the first slot that is no instruction is a user's; true where there is none."""
    return next((slot.role == "user" for slot in slots if slot.role not in INSTRUCTIONS), True)


def last_user(slots: Sequence[Slot]) -> int:
    """The place of the last user message; the number of slots where there is none."""
    places = range(len(slots) - 1, -1, -1)
    return next((i for i in places if slots[i].role == "user" and slots[i].kind is Kind.DIALOGUE), len(slots))


def ages(window: Window, context: Context, unit: Age) -> tuple[Mapping[str, float], Age]:
    """Age of each slot by id, and the unit it is in.

    In turns: how many slots of the conversation came after. In minutes: since the slot was first seen; where the
    present or the time of any evictable slot is unknown, all are in turns, because the two do not compare.
    """
    now = context.now
    if unit == "minutes" and now is not None:
        seen = {slot.id: slot.created_at for slot in window.slots if slot.created_at is not None}
        if all(slot.id in seen for slot in window.slots if slot.evictable):
            return {id_: max(now - created, 0.0) / 60 for id_, created in seen.items()}, "minutes"
    last = max((slot.turn for slot in window.slots), default=0)
    return {slot.id: float(last - slot.turn) for slot in window.slots}, "turns"
