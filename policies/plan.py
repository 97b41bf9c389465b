"""A decision as data, and the check that refuses one that breaks a promise."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evict:
    """The slot with this id leaves the prompt."""

    slot: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """Every tool result of the slot with this id is replaced by `text`; the calls stay."""

    slot: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summarize:
    """The slots with these ids become one summary slot at the place of the oldest."""

    slots: tuple[str, ...]
    reason: str


Action = Evict | Shrink | Summarize


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants done to a window, in the order it decided it."""

    policy: str
    actions: tuple[Action, ...] = ()
