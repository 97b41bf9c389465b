"""Which share of the evidence for a question is still in the request after trimming, by policy and budget.

    python -m bench.quality FILE... [--budgets 0.05,0.10,0.25,0.50] [--policies tail,relevance,...] [--json OUT]
    python -m bench.quality FILE... --replay [--settings "recall: {budget: 0.2}"] [--policies tail,hybrid,...]

A FILE is JSON lines of recorded conversations: `{id, messages, tools?, qas: [{question, evidence, evidence_mode?}]}`
or `{id, request, deps: [{at, sources}]}` (see bench/facts.py). Each question is appended as the last user message, and
the request is trimmed to a share of its whole size, everything included. Evidence counts where the message is sent
verbatim, kept or quoted. What is pinned can be more than a budget: `over` is the share of requests that could not be
brought down to it, and `oracle`, which knows the evidence, shows what pins leave room for.

With `--replay` the conversation is sent turn by turn with what was decided remembered and the settings of a route by
default; its window is that share of its size, and each question is asked at its end, so that every cut was made before
it. There `tail` is a cut that keeps the newest, at the same thresholds and with the same recall.

Besides the names of policies there are `identity`, `tail` (a cut that keeps the newest), `oracle`, and the rankings
`relevance` and `lexical` (the same without vectors), filled into the budget by score. Vectors are kept in the user's
cache folder, so that a second run is quick; `--model none` does without.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from bench import asking, replaying
from bench.data import read
from bench.facts import Probe, probes
from bench.tables import show
from bench.vectors import BATCH, DiskVectors, folder
from bench.views import View, bench_route, view
from bench.ways import OWN, Sent, ways
from policies import registry
from policies.errors import PolicyError
from proxy.embeddings.sentence import DEFAULT_MODEL, SentenceTransformerEmbedder
from proxy.errors import ConfigError
from proxy.route import Route

BUDGETS = "0.05,0.10,0.25,0.50"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(slots=True)
class Tally:
    """What became of the probes so far: sums over them, each with its weight."""

    kept: float = 0.0
    weight: float = 0.0
    over: int = 0
    probes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    categories: dict[str, list[float]] = field(default_factory=dict)

    def add(self, probe: Probe, sent: Sent, target: int, seconds: float) -> None:
        """Count one probe; a fact is kept where one of the messages that state it is sent."""
        share = sum(bool(fact & sent.kept) for fact in probe.facts) / len(probe.facts)
        self.kept += share * probe.weight
        self.weight += probe.weight
        self.over += sent.tokens > target
        self.probes += 1
        self.tokens += sent.tokens
        self.seconds += seconds
        category = self.categories.setdefault(probe.category, [0.0, 0.0])
        category[0] += share * probe.weight
        category[1] += probe.weight

    def figures(self) -> dict[str, Any]:
        """Percentages, mean tokens sent, and milliseconds a request."""
        return {
            "kept": round(100 * self.kept / self.weight, 2),
            "over": round(100 * self.over / self.probes, 2),
            "tokens": round(self.tokens / self.probes),
            "ms": round(1000 * self.seconds / self.probes, 2),
            "categories": {name: round(100 * kept / weight, 2) for name, (kept, weight) in self.categories.items()},
        }


@app.command()
def main(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False)],
    budgets: Annotated[str, typer.Option(help="Shares of the conversation's size, by commas.")] = BUDGETS,
    policies: Annotated[str, typer.Option(help="Policies or ways, by commas.")] = ",".join(OWN),
    model: Annotated[
        str, typer.Option(help="Model of the vectors by name or path; none: words alone.")
    ] = DEFAULT_MODEL,
    every: Annotated[int, typer.Option(min=1, help="Take every n-th probe only.")] = 1,
    replay: Annotated[bool, typer.Option(help="Send turn by turn, and ask at the end.")] = False,
    settings: Annotated[str, typer.Option(help="With --replay: settings of the route, as in a configuration.")] = "",
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Measure evidence kept under budgets."""
    console = Console()
    shares = _shares(budgets)
    vectors = None if model == "none" else DiskVectors(SentenceTransformerEmbedder(model), folder() / "vectors.sqlite")
    names = policies.split(",")
    try:
        routes = {name: asking.route(name, settings) for name in names} if replay else {}
        chosen = {} if replay else ways(names, vectors)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--settings, --policies") from None
    except PolicyError as error:
        raise typer.BadParameter(f"{error}; or one of {', '.join(OWN)}", param_hint="--policies") from None
    figures: dict[str, Any] = {}
    for file in files:
        wanted = [probe for each in read(file) for probe in probes(each)][::every]
        with Progress(console=Console(stderr=True), transient=True) as progress:
            if vectors is not None and "relevance" in chosen:
                _embed(vectors, wanted, progress)
            if replay:
                tallies = _replayed(file, routes, shares, every, vectors, progress)
            else:
                tallies = _measure(chosen, wanted, shares, progress)
        figures[file.stem] = {
            name: {f"{share:g}": tally.figures() for share, tally in zip(shares, row, strict=True)}
            for name, row in tallies.items()
        }
        show(
            console,
            f"{file.stem}: evidence kept in %, {len(wanted)} requests (over: % above the budget)",
            ["", *(f"{share:.0%}" for share in shares), "over", "ms"],
            _rows(figures[file.stem]),
        )
    if out is not None:
        out.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _shares(budgets: str) -> list[float]:
    try:
        shares = [float(each) for each in budgets.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0 < share <= 1 for share in shares):
        raise typer.BadParameter(
            f"must be numbers over 0 and up to 1, like {BUDGETS}, got {budgets!r}", param_hint="--budgets"
        )
    return shares


def _views(wanted: Sequence[Probe]) -> Iterator[View]:
    route = bench_route(registry.create("fifo"))  # its policy is not asked
    return (view(probe, route) for probe in wanted)


def _embed(vectors: DiskVectors, wanted: Sequence[Probe], progress: Progress) -> None:
    texts: dict[str, None] = {}
    for each in progress.track(_views(wanted), total=len(wanted), description="texts"):
        texts |= dict.fromkeys([*each.texts, each.query])
    missing = vectors.missing(texts)
    for start in progress.track(range(0, len(missing), BATCH), description="vectors"):
        vectors.make(missing[start : start + BATCH])


def _measure(
    chosen: dict[str, Any], wanted: Sequence[Probe], shares: Sequence[float], progress: Progress
) -> dict[str, list[Tally]]:
    tallies = {name: [Tally() for _ in shares] for name in chosen}
    for each in progress.track(_views(wanted), total=len(wanted), description="requests"):
        targets = [int(share * each.window.used) for share in shares]
        for name, way in chosen.items():
            start = time.perf_counter()
            sent = way(each, targets)
            seconds = (time.perf_counter() - start) / len(targets)
            for tally, one, target in zip(tallies[name], sent, targets, strict=True):
                tally.add(each.probe, one, target, seconds)
    return tallies


def _replayed(
    file: Path,
    routes: dict[str, Route],
    shares: Sequence[float],
    every: int,
    vectors: DiskVectors | None,
    progress: Progress,
) -> dict[str, list[Tally]]:
    tallies = {name: [Tally() for _ in shares] for name in routes}
    for conversation in progress.track(list(read(file)), description="conversations"):
        if not (wanted := [*probes(conversation)][::every]):
            continue
        size = replaying.size(conversation)
        for name, route in routes.items():
            for tally, share in zip(tallies[name], shares, strict=True):
                window = int(share * size)
                start = time.perf_counter()
                sent = asyncio.run(asking.asked(conversation, wanted, asking.way(route, wanted), window, vectors))
                seconds = (time.perf_counter() - start) / len(wanted)
                for probe, one in zip(wanted, sent, strict=True):
                    tally.add(probe, one, window, seconds)
    return tallies


def _rows(figures: dict[str, dict[str, dict[str, Any]]]) -> Iterable[list[str]]:
    for name, by_share in figures.items():
        cells = list(by_share.values())
        over = "/".join(f"{cell['over']:.0f}" for cell in cells)
        yield [name, *(f"{cell['kept']:.1f}" for cell in cells), over, f"{cells[0]['ms']:.1f}"]


if __name__ == "__main__":
    app()
