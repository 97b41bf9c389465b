"""What became of probes: sums over them that add up, and the figures they come to."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.facts import Probe
from bench.ways import Sent


@dataclass(slots=True)
class Tally:
    """What became of the probes so far: sums over them, each with its weight.

    `probes` are those that can be brought down to their budget, `over` those of them that were not, `cannot_fit` the
    rest, which count for nothing else.
    """

    kept: float = 0.0
    weight: float = 0.0
    over: int = 0
    probes: int = 0
    cannot_fit: int = 0
    tokens: int = 0
    seconds: float = 0.0
    categories: dict[str, list[float]] = field(default_factory=dict)

    def add(self, probe: Probe, sent: Sent, target: int, least: int = 0) -> None:
        """Count one probe, of whose request at `least` so many tokens have to be sent.

        A fact is kept where one of the messages that state it is sent, or its value; what is over the target keeps
        nothing.
        """
        if least > target:
            self.cannot_fit += 1
            return
        over = sent.tokens > target
        share = 0.0 if over and sent.bounded else sum(_kept(probe, sent)) / len(probe.facts)
        self.kept += share * probe.weight
        self.weight += probe.weight
        self.over += over
        self.probes += 1
        self.tokens += sent.tokens
        self.seconds += sent.seconds
        self._category(probe.category, share * probe.weight, probe.weight)

    def merge(self, sums: Mapping[str, Any]) -> None:
        """Add the sums of another, as `sums` gives them."""
        for name in ("kept", "weight", "over", "probes", "cannot_fit", "tokens", "seconds"):
            setattr(self, name, getattr(self, name) + sums[name])
        for name, (kept, weight) in sums["categories"].items():
            self._category(name, kept, weight)

    def _category(self, name: str, kept: float, weight: float) -> None:
        category = self.categories.setdefault(name, [0.0, 0.0])
        category[0] += kept
        category[1] += weight

    def sums(self) -> dict[str, Any]:
        """All of it as JSON holds it."""
        return asdict(self)

    def figures(self) -> dict[str, Any]:
        """Percentages, mean tokens sent and milliseconds a request; None where no request can fit."""
        none = self.probes == 0
        return {
            "kept": None if none else round(100 * self.kept / self.weight, 2),
            "over": None if none else round(100 * self.over / self.probes, 2),
            "requests": self.probes,
            "cannot_fit": self.cannot_fit,
            "tokens": None if none else round(self.tokens / self.probes),
            "ms": None if none else round(1000 * self.seconds / self.probes, 2),
            "categories": {name: round(100 * kept / weight, 2) for name, (kept, weight) in self.categories.items()},
        }


def _kept(probe: Probe, sent: Sent) -> Iterator[bool]:
    for number, fact in enumerate(probe.facts):
        value = probe.values[number] if probe.values else ""
        yield bool(fact & sent.kept) or bool(value and value in sent.said)
