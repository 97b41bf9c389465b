"""Which share of the evidence for a question is still in the request after trimming, by policy and budget.

    python -m bench.quality FILE... [--budgets 0.05,0.10,0.25,0.50] [--policies tail,relevance,...] [--json OUT]
    python -m bench.quality FILE... --policies hybrid --vectors waited,prepared,cold
    python -m bench.quality --planted 20 --replay
    python -m bench.quality FILE... --replay [--settings "recall: {budget: 0.2}"] [--policies tail,hybrid,...]

A FILE is JSON lines of recorded conversations: `{id, messages, tools?, qas: [{question, evidence, evidence_mode?}]}`
or `{id, request, deps: [{at, sources}]}` (see bench/facts.py). Each question is appended as the last user message, and
the request is trimmed to a share of its whole size, everything included. Evidence counts where the message is sent
verbatim, kept or quoted, or where a call's value is in what is left of it. What may neither go nor be cut (tool
schemas, pinned messages, assistant texts among the last slots) can be more than a budget: such requests cannot fit, and
are left out of all rows alike; the table says how many can. Of these, `over` is the share that was not brought down to
the budget, which counts as nothing kept. `oracle`, which knows the evidence, shows what pins leave room for.

With `--replay` the conversation is sent turn by turn with what was decided remembered and the settings of a route by
default; its window is that share of its size, and each question is asked at its end, so that every cut was made before
it. There `tail` is a cut that keeps the newest, at the same thresholds and with the same recall, and `newest` the same
without recall.

Besides the names of policies there are `identity` (all, whatever the budget), `tail` (instructions and the newest
without a gap, even if the task is lost), `oracle`, and the rankings `relevance` and `lexical` (the same without
vectors), filled into the budget by score.

Vectors are `waited` for, `prepared` (those of what came before the prompt are there, or with `--replay` those that the
turns from `warn` on had made; the rest within the time limit) or `cold` (none are there, and the time limit holds; with
`--replay` the question comes to a worker that has just been started).
They are kept in the user's cache folder, so that a second run is quick, but not where time counts; `--model none` does
without.

With `--planted` the conversations are dialogues with facts planted in them (see bench/quality/planted.py) instead: the
share of facts that are sent verbatim when they are asked for is fact retention.

With `--results` each measurement is kept as it is made, and `--resume` goes on after a stop.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import asking
from bench.data import Conversation, read
from bench.quality import evidence
from bench.quality.planted import dialogues
from bench.results import Results
from bench.supply import State
from bench.tables import show
from bench.vectors import opened
from bench.ways import OWN, ways
from policies.errors import PolicyError
from proxy.embeddings.sentence import DEFAULT_MODEL
from proxy.errors import ConfigError

BUDGETS = "0.05,0.10,0.25,0.50"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    files: Annotated[list[Path] | None, typer.Argument(exists=True, dir_okay=False)] = None,
    budgets: Annotated[str, typer.Option(help="Shares of the conversation's size, by commas.")] = BUDGETS,
    policies: Annotated[str, typer.Option(help="Policies or ways, by commas.")] = ",".join(OWN),
    model: Annotated[
        str, typer.Option(help="Model of the vectors by name or path; none: words alone.")
    ] = DEFAULT_MODEL,
    states: Annotated[str, typer.Option("--vectors", help="waited, prepared, cold, by commas.")] = State.WAITED.value,
    planted: Annotated[int, typer.Option(min=0, help="So many dialogues with planted facts.")] = 0,
    messages: Annotated[int, typer.Option(help="With --planted: of each dialogue, at most.")] = 400,
    facts: Annotated[int, typer.Option(help="With --planted: in each dialogue.")] = 20,
    seed: Annotated[int, typer.Option(help="With --planted: of all that is drawn.")] = 7,
    conversations: Annotated[int, typer.Option(min=0, help="Take so many of a file, spread over it; 0: all.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Take every n-th probe only.")] = 1,
    replay: Annotated[bool, typer.Option(help="Send turn by turn, and ask at the end.")] = False,
    settings: Annotated[str, typer.Option(help="With --replay: settings of the route, as in a configuration.")] = "",
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Add the tables to this file, as Markdown.")] = None,
    results: Annotated[Path | None, typer.Option(help="Keep each measurement here as it is made.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from what is in --results.")] = False,
) -> None:
    """Measure evidence kept under budgets."""
    names = tuple(policies.split(","))
    shares = shares_of(budgets)
    found = results_of(results, resume)
    sources = sources_of(files, planted, messages, facts, seed)
    try:
        routes = {name: asking.route(name, settings) for name in names} if replay else None
        if not replay:
            ways(names, None)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--settings, --policies") from None
    except PolicyError as error:
        raise typer.BadParameter(f"{error}; or one of {', '.join(OWN)}", param_hint="--policies") from None
    setup = evidence.Setup(
        names=names,
        shares=shares,
        states=states_of(states),
        every=every,
        settings=settings,
        routes=routes,
        floor=asking.route("newest", settings) if replay else None,
    )
    figures: dict[str, Any] = {}
    with found.stoppable():
        for name, recorded in sources.items():
            tallies, wanted = evidence.measure(name, spread(recorded, conversations), setup, opened(model), found)
            figures[name] = {
                label: {f"{share:g}": tally.figures() for share, tally in zip(shares, row, strict=True)}
                for label, row in tallies.items()
            }
            show(
                Console(),
                f"{name}: evidence kept in %, {_fitting(figures[name], wanted)} (over: % of these above it)",
                ["", *(f"{share:.0%}" for share in shares), "over"],
                _rows(figures[name]),
                markdown,
            )
    if out is not None:
        out.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sources_of(
    files: Iterable[Path] | None, planted: int, messages: int, facts: int, seed: int
) -> dict[str, list[Conversation]]:
    """The conversations that arguments and options name, by where they are from. Raises typer.BadParameter."""
    try:
        found = {file.stem: [*read(file)] for file in files or ()}
        if planted:
            found["planted"] = [*dialogues(planted, messages, facts, seed)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not found:
        raise typer.BadParameter("give a FILE, or --planted with a number of dialogues")
    return found


def spread(conversations: Sequence[Conversation], count: int) -> Sequence[Conversation]:
    """So many of the conversations, at equal distances; all where there are not more, or the count is 0."""
    if not 0 < count < len(conversations):
        return conversations
    return [conversations[i * len(conversations) // count] for i in range(count)]


def shares_of(budgets: str) -> tuple[float, ...]:
    """The shares that an option names. Raises typer.BadParameter."""
    try:
        shares = tuple(float(each) for each in budgets.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share <= 1 for share in shares):
        raise typer.BadParameter(
            f"must be numbers over 0 and up to 1, like {BUDGETS}, got {budgets!r}", param_hint="--budgets"
        )
    return shares


def states_of(given: str) -> tuple[State, ...]:
    """The states that an option names. Raises typer.BadParameter."""
    try:
        return tuple(State(each) for each in given.split(","))
    except ValueError:
        wanted = ", ".join(State)
        raise typer.BadParameter(
            f"must be some of {wanted}, by commas, got {given!r}", param_hint="--vectors"
        ) from None


def results_of(path: Path | None, resume: bool) -> Results:
    """The results that options name. Raises typer.BadParameter."""
    if resume and path is None:
        raise typer.BadParameter("needs --results, which names what to go on from", param_hint="--resume")
    try:
        return Results(path, resume=resume)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--results") from None


def _fitting(figures: dict[str, dict[str, dict[str, Any]]], wanted: int) -> str:
    """How many requests there were, and how many of them can fit into each budget."""
    able = [str(cell["requests"]) for cell in next(iter(figures.values())).values()]
    if set(able) == {str(wanted)}:
        return f"{wanted} requests"
    return f"of {wanted} requests the {'/'.join(able)} that can fit"


def _shown(figure: float | None, digits: int) -> str:
    return "–" if figure is None else f"{figure:.{digits}f}"


def _rows(figures: dict[str, dict[str, dict[str, Any]]]) -> Iterable[Sequence[str]]:
    for name, by_share in figures.items():
        cells = list(by_share.values())
        over = "/".join(_shown(cell["over"], 0) for cell in cells)
        yield [name, *(_shown(cell["kept"], 1) for cell in cells), over]


if __name__ == "__main__":
    app()
