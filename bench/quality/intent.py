"""Intent alignment: what of a support dialogue's intent a policy loses, and what it adds to a request.

    python -m bench.quality.intent FILE... [--windows 0.25,0.50] [--policies fifo,...,hybrid] [--json OUT]

Each conversation is taken apart into slices of 40 messages that do not overlap, without tool schemas. Those with
questions whose evidence lies inside are replayed turn by turn with the settings of a route by default, in a window of
that share of the slice's size, and each question is asked at the end. The alignment of a request is the share, of

    - the first user message,
    - each user message that set a constraint (evidence of a `booking_slot`, `item_option`, `drink` or `user_fact`),
    - and the evidence for the question that is asked,

that is still in it verbatim. `lost` is 100 % less the mean over a slice's questions, then over slices; the full history
loses nothing. `P50` and `P99` are the milliseconds that the pipeline takes, over all requests of all replays, one at a
time, with vectors as the turns before prepared them (`--vectors waited` waits for all of them; `--model none` does
without). What the way through a server adds is measured by `python -m bench.load`.

`newest` is a cut that keeps the newest, without recall; `oracle` knows from the start what will be asked for, and shows
what pinned and protected messages leave room for.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from bench import asking, replaying
from bench.data import read
from bench.progress import bar
from bench.quality.__main__ import results_of, shares_of
from bench.quality.slices import Slice, slices
from bench.quality.tally import Tally
from bench.results import Results, fingerprint
from bench.supply import State, Supply
from bench.tables import show
from bench.vectors import DiskVectors, opened
from proxy.embeddings.sentence import DEFAULT_MODEL
from proxy.errors import ConfigError
from proxy.route import Route

STATED = ("stated: lost", "stated: P99")
REFERENCE = {
    "fifo": (28, 0),
    "lru_token": (12, 8),
    "priority": (7, 15),
    "semantic_cluster": (4, 120),
    "hybrid": (3, 130),
}
"""What others state of such policies, on 200 support dialogues of 40 turns: % of intent lost, ms added at P99."""

POLICIES = "newest,fifo,lru_token,priority,semantic_cluster,hybrid,oracle"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False)],
    windows: Annotated[str, typer.Option(help="Shares of a slice's size, by commas.")] = "0.25,0.50",
    policies: Annotated[str, typer.Option(help="Policies or ways, by commas.")] = POLICIES,
    model: Annotated[
        str, typer.Option(help="Model of the vectors by name or path; none: words alone.")
    ] = DEFAULT_MODEL,
    state: Annotated[State, typer.Option("--vectors", help="How they are there.")] = State.PREPARED,
    every: Annotated[int, typer.Option(min=1, help="Take every n-th slice only.")] = 1,
    settings: Annotated[str, typer.Option(help="Settings of the route, as in a configuration.")] = "",
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Add the table to this file, as Markdown.")] = None,
    results: Annotated[Path | None, typer.Option(help="Keep each measurement here as it is made.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from what is in --results.")] = False,
) -> None:
    """Measure what is lost of the intent of slices, and what policies add to a request."""
    shares = shares_of(windows)
    found = results_of(results, resume)
    try:
        routes = {name: asking.route(name, settings) for name in policies.split(",")}
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--settings, --policies") from None
    chosen = [each for file in files for conversation in read(file) for each in slices(conversation) if each.intents]
    chosen = chosen[::every]
    if not chosen:
        raise typer.BadParameter("no conversation has 40 messages with a question about them", param_hint="FILE")
    with found.stoppable():
        figures = measure(chosen, routes, shares, opened(model), state, found, settings)
    questions = sum(len(each.intents) for each in chosen)
    show(
        Console(),
        f"Intent lost in % and ms added at P50 / P99, {len(chosen)} slices of 40 messages, {questions} questions",
        ["", *(f"{share:.0%}: {name}" for share in shares for name in ("lost", "over", "P50", "P99")), *STATED],
        _rows(figures),
        markdown,
    )
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measure(
    chosen: Sequence[Slice],
    routes: dict[str, Route],
    shares: Sequence[float],
    vectors: DiskVectors | None,
    state: State,
    results: Results,
    settings: str = "",
) -> dict[str, dict[str, dict[str, Any]]]:
    """The figures by way and share; what is in `results` is not measured again."""
    supply = Supply(vectors, state)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {f"{share:g}": [] for share in shares} for name in routes
    }
    with bar("slices", len(chosen) * len(routes)) as advance:
        for each in chosen:
            for name, route in routes.items():
                for share in shares:
                    key = {
                        "measure": "intent",
                        "slice": each.conversation.id,
                        "data": fingerprint(each.conversation.record),
                        "way": name,
                        "window": share,
                        "vectors": state.value if vectors is not None else "none",
                        "settings": settings,
                    }
                    if key not in results:
                        results.put(key, _asked(each, route, share, supply))
                    found[name][f"{share:g}"].append(results.get(key))
                advance()
    return {name: {share: _figures(rows) for share, rows in by.items()} for name, by in found.items()}


def _asked(each: Slice, route: Route, share: float, supply: Supply) -> dict[str, Any]:
    """The sums of a slice in a window, and the milliseconds of each of its requests."""
    window = int(share * replaying.size(each.conversation))
    way = asking.way(route, each.intents)
    asked = asyncio.run(asking.asked(each.conversation, each.intents, way, window, supply))
    tally = Tally()
    for probe, one in zip(each.intents, asked.sent, strict=True):
        tally.add(probe, one, window)
    return {**tally.sums(), "ms": [round(1000 * seconds, 3) for seconds in asked.seconds]}


def _figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    times = [ms for row in rows for ms in row["ms"]]
    return {
        "lost": round(100 * (1 - float(np.mean([row["kept"] / row["weight"] for row in rows]))), 2),
        "over": round(100 * sum(row["over"] for row in rows) / sum(row["probes"] for row in rows), 2),
        "p50_ms": round(float(np.quantile(times, 0.5)), 2),
        "p99_ms": round(float(np.quantile(times, 0.99)), 2),
        "slices": len(rows),
        "requests": len(times),
    }


def _rows(figures: dict[str, dict[str, dict[str, Any]]]) -> Iterable[Sequence[str]]:
    for name, by_share in figures.items():
        cells = [f"{cell[key]:.1f}" for cell in by_share.values() for key in ("lost", "over", "p50_ms", "p99_ms")]
        yield [name, *cells, *map(str, REFERENCE.get(name, ("", "")))]


if __name__ == "__main__":
    app()
