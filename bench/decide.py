"""How long a decision takes, by policy and by the length of the conversation, in milliseconds.

    python -m bench.decide [--slots 40,200,1000] [--rounds 30] [--seconds 2] [--policies hybrid,priority,...] [--cpu]
        [--json OUT]

A `decision` is what stands between a counted prompt and its plan: relevance to the prompt, where the policy asks for
it, then the plan and its check. `warm`: the conversation came by before, and all but the prompt has been read, compared
and embedded; `clustered` as well. `cold`: nothing of it has been seen, and there are no vectors; so everything is read,
and relevance and clusters are by words.

A `request` is all that the proxy does, from a body's bytes to those that would be sent: reading, counting, replaying,
gathering, deciding, recall, rendering. `prepared`: the turns before it came by, and what they prepare is there; the
vector of the prompt takes no time. `+ model`: with the model that is installed, and the limit of 150 ms, after which
what has no vector goes by its words. `new`: nothing of it has been seen.

Each figure is of `--rounds` decisions, or of those that were made within `--seconds`, three at the least: then their
number stands behind it in brackets, and P99 is the slowest of them. The interpreter is set up as where it serves.

The last line is what embedding a prompt takes. With `--cpu` all times are of the processor, whichever threads they are
spent in: for a machine that has other things to do as well. Conversations are drawn at random with a fixed seed, and
cut to half of their size, or to 0.60 of the budget from 0.85; vectors are random around topics, which costs the same
time as real ones.
"""

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from bench import turns
from bench.progress import bar
from bench.tables import show
from bench.turns import DIMENSIONS, TOPICS, Clock
from policies import registry
from policies.clusters import clustered, load
from policies.errors import PolicyError
from policies.lru_token import accesses
from policies.plan import check
from policies.relevance import Index, relevance
from policies.types import Clusterer, Context, Kind, Need, Policy, Slot, Window
from proxy.embeddings import Embedder
from proxy.embeddings.sentence import SentenceTransformerEmbedder
from proxy.serving import GARBAGE_FROM, SWITCH_S

T = TypeVar("T")

DECISION, REQUEST = ("warm", "clustered", "cold"), ("prepared", "prepared + model", "new", "new + model")
_STOPS = ("the", "and", "of", "to", "that", "is", "in", "it", "for", "you", "was", "on", "with", "as", "have", "we")
_SYLLABLES = ("ba", "den", "fo", "gri", "hal", "ju", "kem", "lo", "mir", "nu", "pas", "quo", "rel", "sti", "tor", "vex")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation that is over its budget, with what would be known of it from before."""

    window: Window
    prompt: str
    vectors: dict[str, NDArray[np.float32]]
    asked: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds that `n` decisions took."""

    median: float
    p99: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """The percentiles of some times in seconds."""
        median, p99 = (float(np.quantile(seconds, q)) * 1e3 for q in (0.5, 0.99))
        return cls(median, p99, len(seconds))


LEAST = 3  # decisions of a figure


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured for a figure: `rounds`, or as many as begin within `seconds`, but `LEAST` at the least."""

    rounds: int
    seconds: float

    def spend(self, calls: Iterable[T], free: int = 0) -> Iterator[T]:
        """As many of the calls as there is time for; `free` of them come before any that count."""
        end = time.perf_counter() + self.seconds
        least = free + min(LEAST, self.rounds)
        for number, call in enumerate(calls):
            if number >= free + self.rounds or (number >= least and time.perf_counter() > end):
                return
            yield call


@dataclass(frozen=True, slots=True)
class Row:
    """What decisions and whole requests took, by state."""

    decision: Mapping[str, Times]
    request: Mapping[str, Times]

    def figures(self) -> dict[str, object]:
        """As JSON has it."""
        decision = {state: asdict(times) for state, times in self.decision.items()}
        return {**decision, "request": {state: asdict(times) for state, times in self.request.items()}}


@lru_cache(maxsize=64)
def talk(slots: int, seed: int) -> Talk:
    """A conversation of that many slots, about 65 tokens each and half of it stop words; every eighth a tool group."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) for _ in range(4000)]
    often = [1 / (rank + 200) for rank in range(len(words))]  # as in speech without its stop words
    said = [Slot(id="m0", role="system", text="Be brief.", tokens=10, turn=0, pinned=True)]
    for i in range(1, slots - 1):
        length = rng.randint(12, 36)
        spoken = [*rng.choices(words, often, k=length), *rng.choices(_STOPS, k=length)]
        rng.shuffle(spoken)
        text = f"{' '.join(spoken)}. Order {rng.randint(1000, 9999)}."
        tool = i % 8 == 0
        said.append(
            Slot(
                id=f"m{i}",
                role="assistant" if tool or i % 2 == 0 else "user",
                kind=Kind.TOOL if tool else Kind.DIALOGUE,
                text=text,
                tokens=len(text) // 4,
                turn=i,
                protected=i > slots - 5,
                results=int(tool),
                result_tokens=len(text) // 5 if tool else 0,
            )
        )
    prompt = " ".join(rng.choices(words, often, k=12))
    said.append(Slot(id=f"m{slots - 1}", role="user", text=prompt, tokens=40, turn=slots - 1, pinned=True))
    topics = numbers.normal(size=(TOPICS, DIMENSIONS))
    rows = topics[numbers.integers(0, TOPICS, slots)] + numbers.normal(size=(slots, DIMENSIONS))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    used = sum(slot.tokens for slot in said)
    window = Window(slots=tuple(said), budget=int(used * 0.6), used=used)
    return Talk(window, prompt, {f"m{i}": row for i, row in enumerate(rows[:-1])}, rows[-1])


def used(window: Window) -> Window:
    """The window with how often its slots were taken up by later ones."""
    found = accesses(window.slots)
    slots = (
        replace(slot, reference_count=found[slot.id].references) if slot.id in found else slot for slot in window.slots
    )
    return replace(window, slots=tuple(slots))


def decide(policy: Policy, talk: Talk, index: Index | None, *, dense: bool) -> int:
    """One decision down to half of the conversation; gives the number of actions. Without `index` all is read anew."""
    window, similarity = talk.window, dict[str, float]()
    if Need.USES in policy.needs and index is None:
        window = used(window)
    if Need.SIMILARITY in policy.needs:
        history = window.slots[:-1]
        index = index or Index.of(slot.text for slot in history)
        vectors = [talk.vectors[slot.id] if dense else None for slot in history]
        scores = relevance(talk.prompt, index, vectors, talk.asked if dense else None)
        similarity = dict(zip((slot.id for slot in history), map(float, scores), strict=True))
    context = Context(
        query=talk.prompt,
        overflow=0.5,
        similarity=similarity,
        vectors=talk.vectors if dense else {},
        query_vector=talk.asked if dense else None,
        summary_tokens=200,
    )
    plan = policy.plan(window, window.used // 2, context)
    check(plan, window)
    return len(plan.actions)


def warm(policy: Policy, slots: int, effort: Effort, clock: Clock, *, prepared: bool = False) -> Times:
    """The same conversation again and again; with `prepared` its clusters are known as well."""
    said = talk(slots, seed=0)
    said = replace(said, window=used(said.window))
    if prepared:
        clusters = clustered(said.window.slots[:-1], 64, said.vectors)
        known = tuple(replace(slot, cluster=clusters.get(slot.id)) for slot in said.window.slots)
        said = replace(said, window=replace(said.window, slots=known))
    index = Index.of(slot.text for slot in said.window.slots[:-1])
    decide(policy, said, index, dense=True)
    again = partial(decide, policy, said, index, dense=True)
    return timed(effort.spend(again for _ in range(effort.rounds)), clock)


def cold(policy: Policy, slots: int, effort: Effort, clock: Clock) -> Times:
    """Another conversation each time."""
    decide(policy, talk(slots, seed=0), None, dense=False)  # libraries are loaded at the start, not in a request
    talks = (talk(slots, seed) for seed in range(1, effort.rounds + 1))
    return timed((partial(decide, policy, said, None, dense=False) for said in effort.spend(talks)), clock)


def decisions(policy: Policy, slots: int, effort: Effort, clock: Clock) -> dict[str, Times]:
    """A policy's decisions about conversations of a length, by state."""
    found = {"warm": warm(policy, slots, effort, clock)}
    if isinstance(policy, Clusterer):
        found["clustered"] = warm(policy, slots, effort, clock, prepared=True)
    return found | {"cold": cold(policy, slots, effort, clock)}


def requests(policy: Policy, slots: int, effort: Effort, model: Embedder | None, clock: Clock) -> dict[str, Times]:
    """The same for whole requests; the first of each kind is not timed."""

    def talks() -> Iterator[list[str]]:
        every = ([slot.text for slot in talk(slots, seed).window.slots[1:]] for seed in range(effort.rounds + 1))
        return effort.spend(every, free=1)

    found = {"prepared": turns.warm(policy, talks(), clock), "new": turns.cold(policy, talks(), clock)}
    if model is not None and policy.needs & {Need.SIMILARITY, Need.VECTORS}:
        found["prepared + model"] = turns.warm(policy, talks(), clock, model)
        found["new + model"] = turns.cold(policy, talks(), clock, model)
    return {state: Times.of(found[state][1:]) for state in REQUEST if state in found}


def installed() -> Embedder | None:
    """The model that makes vectors by default, loaded; None where it is not installed."""
    embedder = SentenceTransformerEmbedder()
    if embedder.missing:
        return None
    embedder.embed(["Load the model."])
    return embedder


def embedding(model: Embedder, effort: Effort, clock: Clock) -> Times:
    """What embedding one prompt takes."""
    prompts = [talk(3, seed).prompt for seed in range(effort.rounds)]
    return timed((partial(model.embed, [prompt]) for prompt in effort.spend(prompts)), clock)


def timed(calls: Iterable[Callable[[], object]], clock: Clock) -> Times:
    """The times of calls."""
    seconds = []
    for call in calls:
        started = clock()
        call()
        seconds.append(clock() - started)
    return Times.of(seconds)


@app.command()
def main(
    slots: Annotated[str, typer.Option(help="lengths of conversations, in slots")] = "40,200,1000",
    rounds: Annotated[int, typer.Option(min=1, help="decisions that are timed, for each figure")] = 30,
    seconds: Annotated[float, typer.Option(min=0, help="seconds for each figure; fewer decisions, if they do")] = 2.0,
    policies: Annotated[str, typer.Option(help="names of policies; empty: all")] = "",
    cpu: Annotated[bool, typer.Option("--cpu", help="time of the processor instead of the clock on the wall")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="write the figures here too")] = None,
) -> None:
    """Time decisions, and print P50 / P99 in milliseconds."""
    sizes = _sizes(slots)
    names = [name.strip() for name in policies.split(",") if name.strip()] or registry.names()
    try:
        chosen = [registry.create(name, path="--policies") for name in names]
    except PolicyError as error:
        raise typer.BadParameter(str(error)) from error
    load()
    model, clock, effort = installed(), time.process_time if cpu else time.perf_counter, Effort(rounds, seconds)
    figures: dict[str, dict[int, Row]] = {}
    with served(), bar("decisions", len(chosen) * len(sizes)) as advance:
        for policy in chosen:
            for size in sizes:
                made = Row(decisions(policy, size, effort, clock), requests(policy, size, effort, model, clock))
                figures.setdefault(policy.name, {})[size] = made
                advance()
    console = Console()
    rows = [
        (name if size == sizes[0] else "", size, row) for name, each in figures.items() for size, row in each.items()
    ]
    unit = "ms of the processor" if cpu else "ms"
    cells = [
        [name, str(size), *(_cell(row.decision.get(state), rounds) for state in DECISION)] for name, size, row in rows
    ]
    show(console, f"{unit} for a decision, P50 / P99", ["policy", "slots", *DECISION], cells)
    cells = [
        [name, str(size), *(_cell(row.request.get(state), rounds) for state in REQUEST)] for name, size, row in rows
    ]
    show(console, f"{unit} for a whole request, P50 / P99", ["policy", "slots", *REQUEST], cells)
    with served():
        prompt = None if model is None else embedding(model, effort, clock)
    console.print(
        f"embedding a prompt: {_cell(prompt, rounds)} ms" if prompt else "embedding a prompt: no model installed"
    )
    if out is not None:
        plain = {name: {size: row.figures() for size, row in by_size.items()} for name, by_size in figures.items()}
        out.write_text(json.dumps(plain, indent=1) + "\n")


@contextmanager
def served() -> Iterator[None]:
    """The collector of garbage and the turns of threads as they are where it serves."""
    before, turn_s = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_FROM)
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        sys.setswitchinterval(turn_s)


def _sizes(given: str) -> list[int]:
    try:
        sizes = [int(part) for part in given.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 10:
        raise typer.BadParameter(f"--slots: must be numbers from 10 up, separated by commas, got {given!r}")
    return sizes


def _cell(times: Times | None, rounds: int) -> str:
    if times is None:
        return ""
    return f"{times.median:.1f} / {times.p99:.1f}{f' ({times.n})' if times.n < rounds else ''}"


if __name__ == "__main__":
    app()
