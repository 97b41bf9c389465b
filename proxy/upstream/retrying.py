"""What an upstream's refusal of a prompt leaves room for. (pure)"""

from dataclasses import dataclass

from proxy.upstream.overflow_errors import Kind, Refusal

SMALLER = 0.9  # of what was refused, where the refusal names no limit


@dataclass(frozen=True, slots=True)
class Refused:
    """A prompt that its upstream found too long: it may have `tokens`, as this proxy counts them.

    `window` is the upstream's own word, None where it names none; `reserve` is what it keeps free for the answer.
    """

    window: int | None
    reserve: int
    tokens: int


def refused(refusal: Refusal, sent: int, reserve: int) -> Refused | None:
    """What a prompt of `sent` tokens, as counted here, may have after a refusal; None where trimming cannot help.

    Where the upstream says how many tokens it made of the prompt, its limit is scaled to this proxy's count.
    `reserve` is what was kept free for the answer, for refusals that do not say.
    """
    if refusal.kind is not Kind.CONTEXT or sent < 1:
        return None
    kept = reserve if refusal.output is None else refusal.output
    actual = refusal.prompt
    if actual is None and refusal.needed is not None:
        actual = refusal.needed - (refusal.output or 0)
    if refusal.limit is None:
        less = refusal.over or 0
        return Refused(None, kept, max(1, min(int(sent * SMALLER), sent - less)))
    room = refusal.limit - kept
    if room < 1 and refusal.output is None:
        kept, room = refusal.limit // 2, refusal.limit - refusal.limit // 2  # a guessed reserve does not take it all
    if room < 1:
        return None  # the answer alone is over the limit
    scale = min(1.0, sent / actual) if actual and actual > 0 else 1.0
    tokens = int(room * scale)
    return Refused(refusal.limit, kept, tokens) if tokens > 0 else None
