"""What is left to do when all that is evictable is gone and the prompt is still over the budget. (pure)"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import regex

from policies.greedy import evict_lowest
from policies.plan import Evict
from policies.types import Window
from proxy.conversations.ledger import Truncation
from proxy.pipeline.prompt import Prompt, shortenable, slot_id
from proxy.wire.chat import Message, Text

SHORTEST = 256  # characters that a shortened text keeps at the least, and the least that is worth cutting
LOOK = 32  # characters searched around a cut for the border of a grapheme


def force(window: Window, target: int) -> tuple[Evict, ...]:
    """Evict protected slots, oldest first, until the prompt fits; pinned ones stay."""
    open_slots = tuple(replace(slot, protected=False) for slot in window.slots)
    return evict_lowest(
        replace(window, slots=open_slots),
        target,
        lambda slot: slot.turn,
        "protected, but the prompt was over the budget",
    )


def truncate(
    prompt: Prompt, window: Window, room: int, count: Callable[[str], int]
) -> Iterator[tuple[int, tuple[Truncation, ...]]]:
    """Cuts for the strings of unpinned user and tool messages, oldest first, until the prompt is down to `room` tokens.

    Yields (message index, cuts of its parts). Cuts fall on grapheme borders.
    """
    pinned = {slot.id for slot in window.slots if slot.pinned}
    over = window.used - room
    live = {slot.id for slot in window.slots}
    for group in prompt.groups:
        if slot_id(group) in pinned or slot_id(group) not in live:
            continue
        for index in group.messages:
            message = prompt.messages[index]
            if over <= 0:
                return
            if message is None or not shortenable(message):
                continue
            cuts, freed = _shorten(message, over, count)
            if cuts:
                over -= freed
                yield index, cuts


def _shorten(message: Message, over: int, count: Callable[[str], int]) -> tuple[tuple[Truncation, ...], int]:
    """Cuts that free `over` tokens of a message, or as many as can be, and how many that is."""
    cuts = []
    freed = 0
    for number, part in enumerate(message.parts):
        if not isinstance(part, Text) or freed >= over:
            continue
        before = count(part.text)
        cut = _cut(number, part.text, before, before - (over - freed), count)
        if cut is not None:
            saved = before - count(cut.apply(part.text))
            if saved > 0:
                cuts.append(cut)
                freed += saved
    return tuple(cuts), freed


def _cut(number: int, text: str, tokens: int, wanted: int, count: Callable[[str], int]) -> Truncation | None:
    """The gentlest cut that leaves at most `wanted` of a text's tokens, never less than SHORTEST characters."""
    if len(text) < 2 * SHORTEST:
        return None
    keep = len(text)
    for _ in range(6):
        keep = max(SHORTEST, min(keep - SHORTEST // 4, int(len(text) * max(0, wanted) / max(1, tokens))))
        cut = _borders(number, text, keep)
        left = count(cut.apply(text))
        if left <= wanted or keep == SHORTEST:
            return cut
        wanted_share = wanted / left
        tokens = max(1, int(tokens / max(wanted_share, 0.05)))
    return _borders(number, text, SHORTEST)


def _borders(number: int, text: str, keep: int) -> Truncation:
    head = _border(text, keep // 2)
    tail = len(text) - _border(text, len(text) - (keep - keep // 2))
    return Truncation(number, head, tail)


def _border(text: str, at: int) -> int:
    """The last grapheme border at or before `at`."""
    start = max(0, at - LOOK)
    while start and "\U0001f1e6" <= text[start - 1] <= "\U0001f1ff":  # flags pair up from where their row begins
        start -= 1
    borders = [start + m.start() for m in regex.finditer(r"\X", text[start : at + LOOK])]
    return max((b for b in borders if b <= at), default=at)


def pinned_summary(window: Window) -> str:
    """What keeps a prompt over its budget, in words for the client: tokens pinned and protected, by role."""
    shares: dict[str, int] = {}
    for slot in window.slots:
        if not slot.evictable:
            label = f"{'pinned' if slot.pinned else 'protected'} {slot.role}"
            shares[label] = shares.get(label, 0) + slot.tokens
    parts = [f"{tokens} by {label} messages" for label, tokens in sorted(shares.items(), key=lambda item: -item[1])]
    if window.overhead:
        parts.append(f"{window.overhead} by tool schemas, response format and framing")
    return ", ".join(parts)
