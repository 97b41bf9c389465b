"""Whether a cut that nothing forces pays: what it takes from the provider's cache, and what it saves. (pure)

A cached token costs a share of the full price: 0.5 at gpt-4o, 0.25 at gpt-4.1, 0.1 at gpt-5 and at Claude, by their
price lists. All amounts here are in tokens at the full price.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from policies.types import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Economy:
    """`price` of a cached token, as a share of the full price; within `horizon_turns` requests a cut must pay.

    Of a prompt of fewer than `min_tokens` tokens nothing is cached.
    """

    price: float = 0.25
    horizon_turns: int = 20
    min_tokens: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Tokens that a cut frees, and tokens that stay though they are cached for nothing: what stands behind it."""

    freed: int
    uncached: int


def cut(slots: Sequence[Slot], gone: Collection[str], cached: int, overhead: int = 0) -> Cut:
    """What becomes of a prompt of which the slots with the ids `gone` leave.

    `cached` are the leading tokens that the provider has, `overhead` (which stands first) included. A slot that the
    cached part ends in counts with what of it is cached.
    """
    start, freed, uncached = overhead, 0, 0
    for slot in slots:
        if slot.id in gone:
            freed += slot.tokens
        elif freed:
            uncached += max(0, min(slot.tokens, cached - start))
        start += slot.tokens
    return Cut(freed=freed, uncached=uncached)


def loses(cut: Cut, economy: Economy) -> float:
    """What the next request pays more: tokens behind the first slot that goes, at the full price instead of theirs."""
    return cut.uncached * (1 - economy.price)


def saves(cut: Cut, economy: Economy) -> float:
    """What the requests of the horizon pay less: tokens that are no longer sent, at the price they would be cached."""
    return cut.freed * economy.price * economy.horizon_turns


def worthwhile(cut: Cut, economy: Economy) -> bool:
    """Whether a cut saves more than it loses. One that frees nothing never does."""
    return saves(cut, economy) > loses(cut, economy)
