"""What is left to do when all that is evictable is gone and the prompt is still over the budget. (pure)"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace

import regex

from policies.greedy import evict_lowest
from policies.plan import Evict
from policies.types import Window
from proxy.conversations.ledger import Truncation
from proxy.pipeline.prompt import Prompt, shortenable, slot_id
from proxy.wire.chat import Message, Text

SHORTEST = 256  # characters that a shortened text keeps, while there are others to shorten
HARDER = (64, 0)  # and then
LOOK = 32  # characters searched around a cut for the border of a grapheme

_Freed = tuple[tuple[Truncation, ...], int]  # the cuts of a message, and the tokens that they free


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
) -> Mapping[int, tuple[Truncation, ...]]:
    """Cuts for the strings of unpinned user and tool messages by message index, on grapheme borders.

    Oldest first, until the prompt is down to `room` tokens. Where that leaves it over its budget though every string
    is down to SHORTEST characters, they are cut harder, again oldest first, until it is within: to 64, then to nothing
    but the marker. If even so it is not, there are none: an upstream that takes it all the same gets them whole.
    """
    used, found = _cuts(prompt, window, {}, window.used, room, SHORTEST, count)
    for shortest in HARDER:
        used, found = _cuts(prompt, window, found, used, window.budget, shortest, count)
    return {} if used > window.budget else {index: cuts for index, (cuts, _) in found.items()}


def _cuts(
    prompt: Prompt,
    window: Window,
    found: Mapping[int, _Freed],
    used: int,
    most: int,
    shortest: int,
    count: Callable[[str], int],
) -> tuple[int, Mapping[int, _Freed]]:
    """The cuts that there are, deeper ones in their place until `used` tokens are down to `most`; and what is left."""
    deeper = dict(found)
    for index, message in _open(prompt, window):
        if used <= most:
            break
        _, before = found.get(index, ((), 0))
        cuts, freed = _shorten(message, used + before - most, shortest, count)
        if freed > before:
            deeper[index] = cuts, freed
            used -= freed - before
    return used, deeper


def least(prompt: Prompt, window: Window, count: Callable[[str], int]) -> int:
    """The fewest tokens that evicting and truncating may leave of a prompt."""
    stays = sum(slot.tokens for slot in window.slots if not slot.evictable)
    return window.overhead + stays - sum(freeable(prompt, window, count).values())


def freeable(prompt: Prompt, window: Window, count: Callable[[str], int]) -> Mapping[str, int]:
    """How many tokens truncating may free of each protected slot, by id."""
    found = {slot.id: 0 for slot in window.slots if slot.protected and not slot.pinned}
    owner = {index: slot_id(group) for group in prompt.groups for index in group.messages}
    for index, message in _open(prompt, window, found.keys()):
        found[owner[index]] += _shorten(message, window.used, 0, count)[1]
    return found


def _open(prompt: Prompt, window: Window, among: Set[str] | None = None) -> Iterator[tuple[int, Message]]:
    """The messages, of all live slots or those `among` them, from which may be cut."""
    unpinned = {slot.id for slot in window.slots if not slot.pinned and (among is None or slot.id in among)}
    for group in prompt.groups:
        if slot_id(group) in unpinned:
            for index in group.messages:
                message = prompt.messages[index]
                if message is not None and shortenable(message):
                    yield index, message


def _shorten(message: Message, over: int, shortest: int, count: Callable[[str], int]) -> _Freed:
    """Cuts that free `over` tokens of a message, or as many as can be, and how many that is."""
    cuts = []
    freed = 0
    for number, part in enumerate(message.parts):
        if not isinstance(part, Text) or freed >= over:
            continue
        before = count(part.text)
        cut = _cut(number, part.text, before, before - (over - freed), shortest, count)
        if cut is not None:
            saved = before - count(cut.apply(part.text))
            if saved > 0:
                cuts.append(cut)
                freed += saved
    return tuple(cuts), freed


def _cut(
    number: int, text: str, tokens: int, wanted: int, shortest: int, count: Callable[[str], int]
) -> Truncation | None:
    """The gentlest cut that leaves at most `wanted` of a text's tokens, never less than `shortest` characters."""
    if len(text) < 2 * shortest:
        return None
    keep = len(text)
    for _ in range(6):
        keep = max(shortest, min(keep - SHORTEST // 4, int(len(text) * max(0, wanted) / max(1, tokens))))
        cut = _borders(number, text, keep)
        left = count(cut.apply(text))
        if left <= wanted or keep == shortest:
            return cut
        wanted_share = wanted / left
        tokens = max(1, int(tokens / max(wanted_share, 0.05)))
    return _borders(number, text, shortest)


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
