"""What a request is made of, in tokens of the encoding that it is estimated with, before any ratio. (pure)"""

from collections.abc import Iterable
from typing import NamedTuple

from proxy.tokens import Counter, Measure
from proxy.tokens.ratios import EXACT
from proxy.wire import chat


class Counts(NamedTuple):
    """Tokens by what they are of; counts of parts add up to the counts of the whole.

    The first four are the texts of the messages. `calls` are the names and arguments of tool calls and `schemas` the
    tools and response format: apart, as some templates put them in and others leave them out. `fixed` is framing and
    media, which no ratio touches; `messages` is their number.
    """

    latin: int = 0
    code: int = 0
    cjk: int = 0
    other: int = 0
    calls: int = 0
    schemas: int = 0
    fixed: int = 0
    messages: int = 0


def total(counts: Iterable[Counts]) -> Counts:
    """The counts of several parts together."""
    return Counts(*map(sum, zip(*(Counts(), *counts), strict=True)))


def of_message(counter: Counter, m: chat.Message) -> Counts:
    """The counts of one message."""
    return of_measure(counter.measure(m))


def of_measure(measure: Measure) -> Counts:
    """The counts of a message that an estimating counter measured."""
    return Counts(*measure.classes, fixed=measure.fixed, messages=1)


def of_settings(counter: Counter, settings: chat.Settings) -> Counts:
    """The counts of what a request has beside its messages."""
    framing = counter.framing.preamble + counter.framing.reply
    return Counts(schemas=counter.with_ratios(EXACT).overhead(settings) - framing, fixed=framing)
