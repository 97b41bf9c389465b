"""What a provider's prompt cache keeps of growing conversations: the proxy beside simpler ways to cut, in one run.

    python -m bench.cache DATA [--window 0.3] [--longer-than 16000] [--also "policy: fifo"] [--json F] [--chart F]

DATA is JSON lines of conversations: `{id, request: {messages, tools, model}}`, or `messages` at the top. Each is sent
call by call (every prefix that ends with a user or tool message is one request) through the pipeline, decisions
remembered in between, and each request is compared with the one before: what both begin with is cached.

sent        tokens of a request, mean, as a share of the window
hit         share of the sent tokens that are cached
cost        of all requests beside a sliding window's, cached tokens at `--price`
efficiency  the cost if only tokens new to the conversation were paid in full, over the actual cost
cuts        requests that a new decision was made for
over        requests over the window that could have been brought under it
cannot fit  requests over the window in which what may neither go nor be cut (tool schemas, pinned messages, assistant
            texts among the last slots) is larger than the window by itself
invalid     requests that an upstream would refuse, though it would have taken the client's
calls       connections opened on the way: summarisers and embedders, if there were any
task        share of requests with the current task in them, word by word

Conversations of agents are in the test sets of tau-bench (MIT), tau2-bench (MIT) and SWE-agent (MIT).
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from bench import data, replaying
from bench.data import Conversation
from bench.progress import bar
from bench.replaying import Call
from policies.fifo import Fifo
from proxy import config
from proxy.errors import ConfigError
from proxy.route import Route, Targets, Thresholds

STEPS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
PRICE = 0.25
WITHOUT_RECALL = "recall: {budget: 0}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to cut, over all conversations; see the columns at the top."""

    name: str
    requests: int
    sent: float
    hit: float
    cost: float
    efficiency: float
    cuts: int
    over: int
    cannot_fit: int
    invalid: int
    calls: int
    task: float
    faults: int


def defaults(settings: str = "") -> Route:
    """The rules that a route has by default, with some settings changed, as in a configuration file.

    Raises:
        ConfigError: they are no settings of a route.
    """
    [route] = config.routes(config.loads(f"defaults: {{{settings}}}"))
    return route


def steps(high: float, low: float) -> Route:
    """Oldest first, from `high` down to `low`, shares of the window: what is simple, and does without the rest."""
    return replace(
        defaults(),
        policy=Fifo(),
        thresholds=Thresholds(warn=min(high, 0.75), evict=high, emergency=high),
        targets=Targets(evict=low, emergency=low),
        breathing_turns=0,
        keep_prefix=0.0,
        recall_budget=0.0,
    )


def ways(also: Sequence[str] = (), highs: Sequence[float] = STEPS) -> dict[str, Route]:
    """The ways to cut, by name; the default settings also without recall, to see what relevance costs the cache."""
    found = {"sliding window": steps(1.0, 1.0)}
    found |= {f"half-window steps from {high:g}": steps(high, high / 2) for high in highs}
    found |= {"default settings": defaults(), "without recall": defaults(WITHOUT_RECALL)}
    return {**found, **{settings: defaults(settings) for settings in also}}


def chosen(path: Path, window: float, longer_than: int) -> list[tuple[Conversation, int]]:
    """The conversations of more than `longer_than` tokens, and each one's window in tokens."""
    sized = ((each, replaying.size(each)) for each in data.read(path))
    return [(each, int(window * size) if window <= 1 else int(window)) for each, size in sized if size > longer_than]


async def measure(name: str, route: Route, conversations: Iterable[tuple[Conversation, int]], price: float) -> Row:
    """Replay every conversation in one way."""
    before = _connections.count
    calls = [call for each, window in conversations for call in await replaying.replay(each, route, window)]
    return summary(name, calls, price, connections=_connections.count - before)


def summary(name: str, calls: Sequence[Call], price: float, connections: int = 0) -> Row:
    """The row of some requests; `cost` is in tokens at full price until there is something to compare it with."""
    sent = sum(call.sent for call in calls)
    cost = sum(call.cost(price) for call in calls)
    return Row(
        name=name,
        requests=len(calls),
        sent=sum(call.sent / call.window for call in calls) / len(calls),
        hit=sum(call.cached for call in calls) / sent,
        cost=cost,
        efficiency=sum(call.ideal(price) for call in calls) / cost,
        cuts=sum(call.cut for call in calls),
        over=sum(call.sent > call.window >= call.least for call in calls),
        cannot_fit=sum(call.sent > call.window < call.least for call in calls),
        invalid=sum(bool(call.problems) for call in calls),
        calls=connections,
        task=sum(call.task for call in calls) / len(calls),
        faults=sum(bool(call.faults) for call in calls),
    )


def better(row: Row, rows: Iterable[Row]) -> list[Row]:
    """The rows that send more and are more efficient all the same."""
    return [other for other in rows if other.sent > row.sent and other.efficiency > row.efficiency]


def lead(row: Row, rows: Sequence[Row]) -> float | None:
    """How much more efficient a row is than others are at the same tokens sent, between two of them on a line.

    None where it sends less, or more, than all of them.
    """
    line = sorted((other.sent, other.efficiency) for other in rows)
    for (left, low), (right, high) in pairwise(line):
        if left <= row.sent <= right:
            share = (row.sent - left) / (right - left) if right > left else 0.0
            return row.efficiency - (low + share * (high - low))
    return None


def show(rows: Sequence[Row]) -> None:
    """Print the table, and what it says of the settings by default."""
    width = max(len(row.name) for row in rows)
    head = ("sent", "hit", "cost", "efficiency", "cuts", "over", "cannot fit", "invalid", "calls", "task")
    print(" " * width, *(f"{name:>10}" for name in head))
    for row in rows:
        shares = (f"{row.sent:.3f}", f"{row.hit:.3f}", f"{row.cost:.3f}", f"{row.efficiency:.4f}")
        figures = (*shares, row.cuts, row.over, row.cannot_fit, row.invalid, row.calls, f"{row.task:.1%}")
        print(f"{row.name:{width}}", *(f"{figure:>10}" for figure in figures))
    halves = [row for row in rows if row.name.startswith("half")]
    own = next(row for row in rows if row.name == "default settings")
    names = ", ".join(row.name for row in better(own, halves)) or "none"
    print(f"\nHalf-window steps that send more and are more efficient than the default settings: {names}.")
    if (ahead := lead(own, halves)) is not None:
        print(f"At equal tokens sent the default settings are {ahead:+.4f} more efficient than half-window steps.")
    if faults := sum(row.faults for row in rows):
        print(f"Something failed on the way in {faults} requests.")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="JSON lines of conversations")
    parser.add_argument("--window", type=float, default=0.3, help="up to 1: a share of each conversation; else tokens")
    parser.add_argument("--longer-than", type=int, default=16_000, help="only conversations of more tokens")
    parser.add_argument("--price", type=float, default=PRICE, help="of a cached token, as a share of the full price")
    parser.add_argument(
        "--also", action="append", default=[], help='more settings, as in "policy: fifo, keep_prefix: 0"'
    )
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--chart", type=Path, help="draw efficiency against tokens sent there; needs matplotlib")
    options = parser.parse_args()
    try:
        routes = ways(options.also)
        conversations = chosen(options.data, options.window, options.longer_than)
    except (ConfigError, OSError, ValueError) as error:
        parser.error(str(error))
    if not conversations:
        parser.error(f"--longer-than: no conversation in {options.data} has more than {options.longer_than} tokens")
    sys.addaudithook(_connections)
    rows = []
    with bar("ways", len(routes)) as advance:
        for name, route in routes.items():
            rows.append(asyncio.run(measure(name, route, conversations, options.price)))
            advance()
    rows = [replace(row, cost=row.cost / rows[0].cost) for row in rows]
    print(f"{len(conversations)} conversations, {rows[0].requests} requests, cached tokens at {options.price:g}\n")
    show(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if options.chart:
        draw(rows, options.chart)


def draw(rows: Sequence[Row], path: Path) -> None:
    """A picture of efficiency against tokens sent. Raises SystemExit where matplotlib is missing."""
    try:
        figure = import_module("matplotlib.figure").Figure(figsize=(8, 5), layout="constrained")
    except ImportError:
        raise SystemExit("--chart: needs matplotlib, which is not installed: pip install matplotlib") from None
    axes = figure.subplots()
    halves = sorted((row for row in rows if row.name.startswith("half")), key=lambda row: row.sent)
    axes.plot([row.sent for row in halves], [row.efficiency for row in halves], "o-", label="half-window steps")
    for row in rows:
        if row not in halves:
            axes.plot([row.sent], [row.efficiency], "s", label=row.name)
    axes.set(xlabel="tokens sent, mean, as a share of the window", ylabel="efficiency")
    axes.legend()
    figure.savefig(path)


class _Connections:
    """Counts the connections that this process opens."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: str, _: tuple[object, ...]) -> None:
        self.count += event == "socket.connect"


_connections = _Connections()

if __name__ == "__main__":
    main()
