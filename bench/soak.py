"""A soak: many streams at once for a long time, some of them with faults, and what the proxy holds meanwhile.

`python -m bench.soak --minutes 10 --streams 200` takes two cores. Conversations grow, are cut, and are dropped for new
ones; 5 % of the requests meet a fault of the upstream or a client that leaves. Every answer without a fault must be
whole and equal to the byte; at the end nothing may be left open.

What the proxy remembers is bounded. Here it may remember little (`server.memory_bytes`), and what it remembers of
messages is filled to its bounds before, what it remembers of decisions within the first fifth of the time; so memory
that grows from the second fifth to the last is memory that leaks. How full each memory is stands beside it.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from bench.served import Served, Vitals, served
from bench.streams import FAULTS, LEAVES, Source, Stream, ask, judge, source

SETTINGS = (
    "defaults: {policy: priority, window: 1500, reserve_output: 300, hold: {wait_s: 0}}\n"
    "server: {max_requests: 2000, memory_bytes: 33554432}\n"
    "state_ttl_s: 60"  # so that as many decisions expire as are made
)
WORDS = ("tide", "berth", "crane", "quay", "pilot", "ferry", "anchor", "mast", "harbour", "cargo", "lantern", "signal")
FILLING = 60  # requests before the soak, of so many messages each
FILLED_WITH = 300
MOST_MB = 10.0  # of growth from the second to the last fifth; of a large process, this share of it
MOST_SHARE = 0.02
SILENT_S = 15.0  # for which an upstream is waited for: longer than a busy machine lets one wait
SETTLED_S = 40.0  # the longest that idle connections to an upstream are kept, and more


@dataclass(slots=True)
class Report:
    """What a soak saw; `wrong` says what was not as it must be, by what it is and how often."""

    requests: int = 0
    faulted: int = 0
    trimmed: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    samples: list[Vitals] = field(default_factory=list)
    before: Vitals | None = None
    after: Vitals | None = None
    left_open: int = 0

    def fifths(self, figure: Callable[[Vitals], float]) -> list[float]:
        """The medians of a figure over each fifth of the samples; fewer where there are fewer samples."""
        count = len(self.samples)
        places = [count * n // 5 for n in range(6)]
        return [statistics.median(map(figure, self.samples[a:b])) for a, b in pairwise(places) if a < b]

    def growth_mb(self) -> float:
        """How much more memory the process had in the last fifth of the time than in the second, by their medians."""
        resident = self.fifths(lambda vitals: vitals.rss_mb)
        return resident[-1] - resident[1] if len(resident) > 2 else 0.0

    def grown(self) -> bool:
        """Whether that is more than a process whose memories are full may gain: MOST_MB or MOST_SHARE of it."""
        resident = self.fifths(lambda vitals: vitals.rss_mb)
        return len(resident) > 2 and self.growth_mb() > max(MOST_MB, MOST_SHARE * resident[1])

    def overfull(self) -> list[str]:
        """Memories that ever held more than they may."""
        over = {name for vitals in self.samples for name, each in vitals.memories.items() if each.held > each.most}
        return sorted(over)

    def leaks(self) -> list[str]:
        """What there is more of after it than before."""
        if self.before is None or self.after is None:
            return []
        pairs = (
            ("file descriptors", self.before.fds, self.after.fds),
            ("tasks", self.before.tasks, self.after.tasks),
            ("upstream connections", 0, self.left_open),
            ("requests", 0, self.after.requests),
        )
        return [f"{name}: {after - before} more" for name, before, after in pairs if after > before]


class Talk:
    """One client: a conversation after another, each growing until it is left."""

    def __init__(self, number: int, report: Report, *, faulty: float, chunks: int, gap_s: float) -> None:
        self.rng = random.Random(number)
        self.report = report
        self.faulty = faulty
        self.chunks = chunks
        self.gap_s = gap_s
        self.messages: list[dict[str, str]] = []

    async def run(self, port: int, until: float) -> None:
        """Ask until the time is over, in seconds of time.perf_counter."""
        while time.perf_counter() < until:
            if not self.messages or self.rng.random() < 0.02:
                self.messages = [{"role": "system", "content": f"You know {self._words(30)}."}]
            self.messages.append({"role": "user", "content": self._words(60)})
            body = json.dumps({"model": "gpt-4o", "stream": True, "messages": self.messages}).encode()
            fault = self.rng.choice(FAULTS) if self.rng.random() < self.faulty else ""
            chunks = self.rng.randint(1, 2 * self.chunks)
            stream = Stream(seed=self.rng.getrandbits(48), chunks=chunks, gap_s=self.gap_s, fault=fault)
            leave = self.rng.randint(0, chunks) if fault == LEAVES else None
            problem = judge(stream, await ask(port, stream, body, leave_after=leave))
            self.report.requests += 1
            self.report.faulted += bool(fault)
            if problem is not None:
                where = f"{fault or 'no fault'}: {problem.split(':')[0]}"
                self.report.wrong[where] = self.report.wrong.get(where, 0) + 1
            self.messages.append({"role": "assistant", "content": self._words(40)})

    def _words(self, number: int) -> str:
        return " ".join(self.rng.choices(WORDS, k=number))


async def fill(port: int, requests: int) -> None:
    """Requests with messages that nobody sent before, until the memories for what was read of them are full."""
    rng = random.Random(time.time_ns())
    for number in range(requests):
        said = [" ".join(rng.choices(WORDS, k=60)) + f" {number}.{n}" for n in range(FILLED_WITH)]
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate([*said, "now"])]
        stream = Stream(seed=number, chunks=1)
        got = await ask(port, stream, json.dumps({"model": "gpt-4o", "messages": messages}).encode())
        if (problem := judge(stream, got)) is not None:
            raise RuntimeError(f"filling, request {number}: {problem}")


async def soak(
    seconds: float,
    streams: int,
    *,
    faulty: float = 0.05,
    chunks: int = 20,
    gap_s: float = 0.02,
    filling: int = 0,
    settled_s: float = 0.0,
    idle_s: float = 3.0,
) -> Report:
    """Run a soak, after so many requests that fill the proxy's memory, and report.

    At the end idle connections get `settled_s` seconds to be closed.
    """
    report = Report()
    async with source() as upstream, served(upstream.url, SETTINGS, idle_s=idle_s) as proxy:
        await fill(proxy.port, filling)
        report.before = await proxy.vitals()
        until = time.perf_counter() + seconds
        talks = [Talk(number, report, faulty=faulty, chunks=chunks, gap_s=gap_s) for number in range(streams)]
        running = asyncio.gather(*(talk.run(proxy.port, until) for talk in talks))
        while not running.done():
            report.samples.append(await proxy.vitals())
            await asyncio.wait({running}, timeout=max(0.5, seconds / 60))
        await running
        await _quiet(proxy, upstream, report, settled_s)
        report.trimmed = proxy.audit.read_bytes().count(b'"action":"trimmed"')
    return report


async def _quiet(proxy: Served, upstream: Source, report: Report, settled_s: float) -> None:
    """Wait until nothing is under way, and note what is left then."""
    until = time.perf_counter() + settled_s
    for _ in range(150 + int(5 * settled_s)):
        await asyncio.sleep(0.2)
        report.after, report.left_open = await proxy.vitals(), upstream.busy
        idle = not report.left_open and not report.after.requests
        if idle and (not report.leaks() or time.perf_counter() > until):
            return


def main() -> None:
    """Run a soak and print its figures; exit 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--faulty", type=float, default=0.05, help="share of the requests that meet a fault")
    given = parser.parse_args()
    report = asyncio.run(
        soak(
            given.minutes * 60,
            given.streams,
            faulty=given.faulty,
            filling=FILLING,
            settled_s=SETTLED_S,
            idle_s=SILENT_S,
        )
    )
    print("\n".join(told(report)))
    failed = report.wrong or report.leaks() or report.grown() or report.overfull()
    raise SystemExit(1 if failed else 0)


def told(report: Report) -> Iterator[str]:
    """The report in lines."""
    before, after = report.before, report.after
    assert before is not None
    assert after is not None
    peak = max(report.samples, key=lambda v: v.rss_mb)
    resident, remembered = report.fifths(lambda v: v.rss_mb), report.fifths(lambda v: v.remembered_mb)
    yield f"requests {report.requests}, with faults {report.faulted}, trimmed {report.trimmed}"
    yield f"memory MB: {before.rss_mb:.0f} before, {peak.rss_mb:.0f} at most, {after.rss_mb:.0f} after"
    yield f"  resident, by fifths of the time: {_row(resident)}"
    yield f"  of it remembered: {_row(remembered)}"
    yield (
        f"  growth from the second to the last fifth {report.growth_mb():+.1f}: "
        + ("not flat" if report.grown() else "flat")
        + f", at most {MOST_MB:.0f} or {MOST_SHARE:.0%}"
    )
    yield "memories, MB of so many, how full before the soak and by fifths of the time:"
    for name, last in report.samples[-1].memories.items():
        shares = [before.memories[name].share, *report.fifths(lambda v, name=name: v.memories[name].share)]  # type: ignore[misc]
        if max(shares) > 0:
            filled = " ".join(f"{share:4.0%}" for share in shares)
            yield f"  {name:<12}{last.held / 2**20:7.2f} of {last.most / 2**20:6.2f}   {filled}"
    yield f"over their bounds: {', '.join(report.overfull()) or 'none'}"
    yield f"file descriptors: {before.fds} before, {max(v.fds for v in report.samples)} at most, {after.fds} after"
    yield f"tasks: {before.tasks} before, {max(v.tasks for v in report.samples)} at most, {after.tasks} after"
    yield f"upstream connections left open: {report.left_open}; requests left open: {after.requests}"
    yield f"wrong: {report.wrong or 'nothing'}"
    yield f"left behind: {', '.join(report.leaks()) or 'nothing'}"


def _row(figures: Iterable[float]) -> str:
    return " ".join(f"{figure:.1f}" for figure in figures)


if __name__ == "__main__":
    main()
