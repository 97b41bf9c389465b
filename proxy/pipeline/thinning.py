"""The most messages that a provider takes, as a second budget beside that of tokens, over the same slots. (pure)"""

from collections.abc import Mapping
from dataclasses import replace

from policies.greedy import evict_lowest
from policies.plan import Evict
from policies.types import Window
from proxy.pipeline.prompt import Prompt, slot_id

LEAST_BYTES = 13  # of a message with nothing but a role, and its comma


def messages(prompt: Prompt) -> int:
    """How many messages a prompt has, notes that stand by themselves included."""
    own = sum(message is not None for message in prompt.messages)
    return own + sum(not placed.note.merge for placed in prompt.notes)


def may_exceed(size: int, most: int | None) -> bool:
    """Whether a body of `size` bytes can have more than `most` messages."""
    return most is not None and size > LEAST_BYTES * most


def thin(prompt: Prompt, window: Window, most: int, target: int, *, force: bool) -> tuple[Evict, ...]:
    """Evict until a prompt of more than `most` messages has at most `target`: oldest slots first, whole slots only.

    Where that is not enough, `force` evicts protected slots too, oldest first, until `most` are left.
    """
    sizes = _sizes(prompt)
    slots = tuple(replace(slot, tokens=sizes[slot.id]) for slot in window.slots)
    used = sum(slot.tokens for slot in slots)
    if used <= most:
        return ()
    reason = f"the route sends at most {most} messages"
    counted = replace(window, slots=slots, used=used, overhead=0)
    gone = evict_lowest(counted, target, lambda slot: slot.turn, reason)
    names = {action.slot for action in gone}
    left = tuple(replace(slot, protected=False) for slot in slots if slot.id not in names)
    used = sum(slot.tokens for slot in left)
    if used <= most or not force:
        return gone
    opened = replace(counted, slots=left, used=used)
    return gone + evict_lowest(opened, most, lambda slot: slot.turn, f"protected, but {reason}")


def _sizes(prompt: Prompt) -> Mapping[str, int]:
    """The messages of each slot."""
    sizes = {slot_id(group): sum(prompt.messages[i] is not None for i in group.messages) for group in prompt.groups}
    return sizes | {placed.note.id: int(not placed.note.merge) for placed in prompt.notes}
