"""Evidence kept, measured conversation by conversation: cut to a budget at once, or replayed turn by turn."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import asking, replaying
from bench.data import Conversation
from bench.facts import Probe, probes
from bench.progress import bar
from bench.quality.tally import Tally
from bench.results import Results, fingerprint
from bench.supply import State, Supply
from bench.vectors import BATCH, DiskVectors
from bench.views import View, bench_route, texts, view
from bench.ways import OWN, Way, ways
from policies import registry
from policies.types import reads_prompt
from proxy.route import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A way under its name, with vectors in one of their states."""

    name: str
    state: State

    @property
    def label(self) -> str:
        """What it is called in figures."""
        return self.name if self.state is State.WAITED else f"{self.name}, {self.state.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is to be measured: ways by name, under budgets as shares, with vectors in some states.

    Of a conversation's probes every `every`-th is taken. `routes` are those of the ways, by name, where conversations
    are replayed, under `settings`; `floor` is then the one that tells whether a probe can fit at all, for all of them.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    states: tuple[State, ...] = (State.WAITED,)
    every: int = 1
    settings: str = ""
    routes: Mapping[str, Route] | None = None
    floor: Route | None = None

    @property
    def rows(self) -> list[Row]:
        """Each way with each state of vectors that makes a difference to it."""
        return [
            Row(name=name, state=state)
            for name in self.names
            for state in (self.states if self._reads_prompt(name) else (State.WAITED,))
        ]

    def _reads_prompt(self, name: str) -> bool:
        if self.routes is not None:
            return reads_prompt(self.routes[name].policy)
        return name not in OWN and reads_prompt(registry.create(name))

    def key(self, name: str, conversation: Conversation, row: Row) -> dict[str, Any]:
        """What one measurement is of."""
        return {
            "measure": "evidence in what fits" if self.routes is None else "evidence in what fits, replayed",
            "file": name,
            "conversation": conversation.id,
            "data": fingerprint(conversation.record),
            "way": row.label,
            "budgets": self.shares,
            "every": self.every,
            "settings": self.settings,
        }


@dataclass(frozen=True, slots=True)
class Task:
    """A conversation with its probes, and the way to send it."""

    conversation: Conversation
    asked: list[Probe]
    row: Row


def measure(
    name: str, conversations: Iterable[Conversation], setup: Setup, vectors: DiskVectors | None, results: Results
) -> tuple[dict[str, list[Tally]], int]:
    """The tallies of conversations, by the label of the way one for each budget, and how many probes there were.

    `name` says where they are from. What is in `results` is not measured again. Raises PolicyError for a name that is
    no way's.
    """
    wanted = [(each, [*probes(each)][:: setup.every]) for each in conversations]
    wanted = [(each, asked) for each, asked in wanted if asked]
    rows = setup.rows
    todo = [
        Task(each, asked, row) for each, asked in wanted for row in rows if setup.key(name, each, row) not in results
    ]
    if vectors is not None:
        _embed(name, vectors, todo, slots="relevance" in setup.names)
    measured = _cut(todo, setup, vectors) if setup.routes is None else _replayed(todo, setup, vectors)
    with bar(f"{name}: requests", sum(len(task.asked) for task in todo)) as advance:
        for task, tallies in zip(todo, measured, strict=True):
            results.put(setup.key(name, task.conversation, task.row), [tally.sums() for tally in tallies])
            advance(len(task.asked))
    found = {row.label: [Tally() for _ in setup.shares] for row in rows}
    for each, _ in wanted:
        for row in rows:
            for tally, sums in zip(found[row.label], results.get(setup.key(name, each, row)), strict=True):
                tally.merge(sums)
    return found, sum(len(asked) for _, asked in wanted)


def _embed(name: str, vectors: DiskVectors, todo: Sequence[Task], *, slots: bool) -> None:
    """Make the vectors that are not on disk yet, so that no request is charged with them."""
    wanted: dict[str, None] = {}
    requests = {probe.id: probe for task in todo for probe in task.asked}
    with bar(f"{name}: texts", len(requests)) as advance:
        for probe in requests.values():
            wanted |= dict.fromkeys(texts(probe, slots=slots))
            advance()
    missing = vectors.missing(wanted)
    with bar(f"{name}: vectors", len(missing)) as advance:
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            vectors.make(batch)
            advance(len(batch))


def _cut(todo: Sequence[Task], setup: Setup, vectors: DiskVectors | None) -> Iterator[list[Tally]]:
    """Each task with its requests cut to the budgets at once."""
    chosen: dict[Row, Way] = {}
    views: dict[str, list[View]] = {}
    for task in todo:
        if task.row not in chosen:
            chosen |= {task.row: ways([task.row.name], vectors, task.row.state)[task.row.name]}
        if task.conversation.id not in views:
            route = bench_route(registry.create("fifo"))  # its policy is not asked
            views = {task.conversation.id: [view(probe, route) for probe in task.asked]}
        tallies = [Tally() for _ in setup.shares]
        for each in views[task.conversation.id]:
            targets = [int(share * each.window.used) for share in setup.shares]
            for tally, one, target in zip(tallies, chosen[task.row](each, targets), targets, strict=True):
                tally.add(each.probe, one, target, each.bounds(target).least)
        yield tallies


def _replayed(todo: Sequence[Task], setup: Setup, vectors: DiskVectors | None) -> Iterator[list[Tally]]:
    """Each task with its conversation sent turn by turn, in windows of the shares of its size."""
    routes = setup.routes or {}
    views: dict[str, list[View]] = {}
    for task in todo:
        supply = Supply(vectors, task.row.state)
        route = asking.way(routes[task.row.name], task.asked)
        size = replaying.size(task.conversation)
        if task.conversation.id not in views:
            views = {task.conversation.id: [view(probe, setup.floor or route) for probe in task.asked]}
        tallies = [Tally() for _ in setup.shares]
        for tally, share in zip(tallies, setup.shares, strict=True):
            window = int(share * size)
            found = asyncio.run(asking.asked(task.conversation, task.asked, route, window, supply))
            for each, one in zip(views[task.conversation.id], found.sent, strict=True):
                tally.add(each.probe, one, window, each.bounds(window).least)
        yield tallies
