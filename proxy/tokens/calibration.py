"""How many tokens a model whose tokenizer nobody knows makes of a request, learned from its upstream's usage. (pure)

    tokens = latin·r₁ + code·r₂ + cjk·r₃ + other·r₄ + calls·r₅ + schemas·r₆ + messages·c + fixed

The ratios r and the constant c begin at priors and are fitted by weighted ridge regression (`regression`) on relative
errors, each observation counting by what it tells: little if the request is tiny, mostly media or mostly seen before;
less if it is far off what many agree on (Huber's weights); more if it costs more than was thought, as it is
underestimates that overflow. What a conversation still differs by is a factor of its own, from its last request.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from proxy.tokens.counts import Counts
from proxy.tokens.ratios import Ratios
from proxy.tokens.regression import Sums, nothing

SIZE = 7  # coefficients
LARGEST = 100_000_000  # tokens; a usage beyond that is taken for a mistake
SETTLED = 8  # observations after which a surprise is taken for an outlier
RECENT = 128  # errors that the margin is made from
ENOUGH = 16  # errors before which the margin is the largest
MARGIN_MIN, MARGIN_MAX = 0.01, 0.10
LIFT = 0.03  # at most, of the first estimate of a conversation, where the margin alone would not do
SHORT = 0.6  # of what its texts alone must cost: a usage under that is of a prompt that was cut
STEADY = 0.95  # of what a conversation cost before: when it grows, it costs no less
SHORTFALLS = 8  # so many in a row, and it is the calibration that is wrong

_HEADROOM = 1.5  # over the largest recent underestimate
_SLACK = 64  # tokens; of a short prompt no shortfall is large
_SPREAD = 0.05  # relative, between requests of a model that is known well
_NOISE = 30.0  # tokens that a request may have more or less for reasons of its own
_MEDIA_SPREAD = 0.3  # relative, of what is fixed
_KEEP = 0.995  # of what was seen, with each new observation: some 200 count
_UNDER = 3.0  # weight of an underestimate
_REPEAT = 0.05  # least weight of a request that grew by little
# In the order of the formula: how far from the prior they may be expected, and how far they may go at all.
_EXPECTED = (0.15, 0.3, 0.6, 0.5, 1.0, 1.0, 8.0)
_LOW = (0.6, 0.6, 0.5, 0.5, 0.0, 0.0, -15.0)
_HIGH = (2.5, 3.0, 4.0, 6.0, 3.0, 3.0, 40.0)
_STIFFNESS = tuple((_SPREAD / each) ** 2 for each in _EXPECTED)
_FACTOR_MIN, _FACTOR_MAX = 0.1, 4.0


class Past(NamedTuple):
    """A conversation's last request: what it was made of, and what the upstream counted."""

    counts: Counts
    actual: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known about one model of one upstream. Begin with `start`; every `observe` gives the next.

    `weights` are the coefficients of the formula. `opening` and `following` are by how much recent requests were
    underestimated, in thousandths, newest last: those of conversations not seen before, and those with a past.
    """

    prior: Ratios
    sums: Sums
    weights: tuple[float, ...]
    seen: int = 0
    opening: bytes = b""
    following: bytes = b""
    shortfalls: int = 0

    def ratios(self) -> Ratios:
        """The ratios of the four classes of text."""
        return Ratios(*self.weights[:4])

    def scaled(self, counts: Counts, past: Past | None = None, *, margin: bool = True) -> Ratios:
        """The ratios with which a counter estimates each part of this request as `estimate` does the whole.

        With the margin on top, unless it is left out.
        """
        factor = self.factor(counts, past) * (1 + self.margin(past) if margin else 1)
        latin, code, cjk, other, calls, schemas, message = self.weights
        return Ratios(latin, code, cjk, other, calls=calls, schemas=schemas, message=message, factor=factor)

    def tokens(self, counts: Counts) -> float:
        """The estimate by the formula alone, of a request or of a part of it; never negative."""
        learned = sum(w * n for w, n in zip(self.weights, _learned(counts), strict=True))
        return max(learned + counts.fixed, 0.0)

    def factor(self, counts: Counts, past: Past | None) -> float:
        """What the estimates of a conversation with this past are multiplied by.

        A past that was cheaper than estimated counts for less the more was added since.
        """
        if past is None:
            worst = self._worst(None)
            return 1 + (LIFT if worst is None else min(max(_HEADROOM * worst - MARGIN_MAX, 0.0), LIFT))
        before = self.tokens(past.counts)
        if before <= 0:
            return 1.0
        factor = min(max(past.actual / before, _FACTOR_MIN), _FACTOR_MAX)
        growth = self.tokens(counts) / before
        return 1 - (1 - factor) / math.sqrt(growth) if factor < 1 < growth else factor

    def estimate(self, counts: Counts, past: Past | None = None) -> int:
        """Tokens of a request, without the margin, rounded up; at least 1."""
        return max(math.ceil(round(self.tokens(counts) * self.factor(counts, past), 6)), 1)

    def _worst(self, past: Past | None) -> float | None:
        """The largest recent underestimate, None where too few are known."""
        recent = self.opening if past is None else self.following
        return max(recent) / 1000 if len(recent) >= ENOUGH else None

    def margin(self, past: Past | None = None) -> float:
        """What to add to an estimate, as a share of it, so that fewer than one in a hundred is too low."""
        worst = self._worst(past)
        return MARGIN_MAX if worst is None else min(max(_HEADROOM * worst + 0.005, MARGIN_MIN), MARGIN_MAX)

    def truncated(self, counts: Counts, actual: int, past: Past | None = None) -> bool:
        """Whether a usage says that the upstream quietly cut the prompt.

        Judged by the texts alone: that a template leaves tools out is no cut. A conversation that grew is judged by
        what it cost before as well, and by what its new texts must cost at least.
        """
        least = SHORT * self._texts(counts)
        if past is not None and all(now >= before for now, before in zip(counts, past.counts, strict=True)):
            new = self._texts(counts) - self._texts(past.counts)
            least = max(least, STEADY * past.actual + SHORT * new)
        return upstream_truncated(least, actual, share=1.0)

    def _texts(self, counts: Counts) -> float:
        return sum(w * n for w, n in zip(self.weights[:4], counts[:4], strict=True))

    def observe(self, counts: Counts, actual: int, past: Past | None = None) -> "Calibration":
        """What is known after a request of these counts was answered with a usage of `actual` prompt tokens.

        A usage of a prompt that was cut, or that no prompt has, teaches nothing; but after SHORTFALLS in a row it all
        begins anew, since a model may be replaced under its name.
        """
        if not 1 <= actual <= LARGEST:
            return self
        if self.truncated(counts, actual, past):
            if self.shortfalls + 1 >= SHORTFALLS:
                return start(self.prior)
            return replace(self, shortfalls=self.shortfalls + 1)
        learned = replace(self, shortfalls=0, seen=self.seen + 1)
        if self.seen >= SETTLED:
            factor = 1.0 if past is None else self.factor(counts, past)
            learned = learned._with_error(actual / max(self.tokens(counts) * factor, 1) - 1, past)
        novelty = 1.0
        if past is not None and (now := self.tokens(counts)) > 0:
            novelty = min(max(1 - self.tokens(past.counts) / now, _REPEAT), 1.0)
        sums = self.sums.plus(
            [n / actual for n in _learned(counts)],
            (actual - counts.fixed) / actual,
            weight=novelty * self._weight(counts, actual),
            keep=_KEEP**novelty,
        )
        return replace(learned, sums=sums, weights=_solve(sums, self.prior))

    def _weight(self, counts: Counts, actual: int) -> float:
        """How much an observation tells, apart from its novelty."""
        variance = _SPREAD**2 + (_NOISE / actual) ** 2 + (_MEDIA_SPREAD * counts.fixed / actual) ** 2
        weight = _SPREAD**2 / variance
        error = 1 - self.tokens(counts) / actual
        expected = 2 * math.sqrt(variance) + _SPREAD
        if self.seen >= SETTLED and abs(error) > expected:
            weight *= expected / abs(error)
        return weight * _UNDER if error > 0 else weight

    def _with_error(self, error: float, past: Past | None) -> "Calibration":
        thousandths = bytes((min(max(round(1000 * error), 0), 255),))
        if past is None:
            return replace(self, opening=(self.opening + thousandths)[-RECENT:])
        return replace(self, following=(self.following + thousandths)[-RECENT:])


def start(prior: Ratios) -> Calibration:
    """What is known of a model before its first answer: the prior ratios of its family."""
    sums = nothing(SIZE)
    return Calibration(prior, sums, _solve(sums, prior))


def restore(
    prior: Ratios, sums: Sums, *, seen: int = 0, opening: bytes = b"", following: bytes = b"", shortfalls: int = 0
) -> Calibration:
    """A calibration from what was kept of it."""
    return Calibration(prior, sums, _solve(sums, prior), seen, opening, following, shortfalls)


def upstream_truncated(estimate: float, actual: int, *, share: float = SHORT) -> bool:
    """Whether `actual` tokens are so far below an estimate that only a cut of the prompt explains it.

    A usage of none at all says nothing.
    """
    return 1 <= actual < share * estimate - _SLACK


def _learned(counts: Counts) -> tuple[int, ...]:
    """What the coefficients are of, in their order."""
    return (*counts[:6], counts.messages)


def _solve(sums: Sums, prior: Ratios) -> tuple[float, ...]:
    begin = (prior.latin, prior.code, prior.cjk, prior.other, prior.code, prior.code, 0.0)
    return sums.solve(begin, _STIFFNESS, _LOW, _HIGH)
