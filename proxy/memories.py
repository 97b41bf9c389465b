"""What a worker remembers, by kind: how much of it at the most, and how much it is. (pure)"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

_MB = 2**20


class Held(NamedTuple):
    """How many entries a memory has, the bytes that they take, and the most that they may take."""

    entries: int
    bytes: int
    most: int


Memories = Mapping[str, Callable[[], Held]]
"""Memories by their names, which metrics use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most bytes that each kind of memory may take.

    - messages: messages and schemas as they were read
    - requests: the last request of each conversation, with what was worked out along its messages
    - counts: the tokens of messages
    - terms: what messages are found by
    - decisions: the decisions that this worker used lately, as a store has them
    - ledgers: the same, ready to be used
    - plans, clusters: what was made ahead for the next cut
    - ratings: how much messages matter, as a model rates it
    - background: requests that wait for something to be made ahead for them
    - state: the store, where it is memory://
    """

    messages: int = 64 * _MB
    requests: int = 64 * _MB
    counts: int = 32 * _MB
    terms: int = 64 * _MB
    decisions: int = 24 * _MB
    ledgers: int = 16 * _MB
    plans: int = 16 * _MB
    clusters: int = 16 * _MB
    ratings: int = 8 * _MB
    background: int = 56 * _MB
    state: int = 120 * _MB

    @property
    def total(self) -> int:
        """Bytes of all of them together."""
        return sum(getattr(self, each.name) for each in fields(self))

    @classmethod
    def of(cls, total: int) -> "Bounds":
        """Bounds that come to at most `total` bytes, in the same proportions. Raises ValueError for less than 1 MB."""
        if total < _MB:
            raise ValueError(f"total: must be at least {_MB} bytes, got {total}")
        usual = cls()
        return cls(**{each.name: getattr(usual, each.name) * total // usual.total for each in fields(cls)})


def together(memories: Memories) -> Held:
    """What several memories hold."""
    held = [each() for each in memories.values()]
    return Held(*map(sum, zip(*held, strict=True))) if held else Held(0, 0, 0)
