"""Many slow streams at once on one worker: the memory that each takes, and how much later a chunk comes through.

`python -m bench.slow_streams --streams 1000 --seconds 60`. Every chunk carries the time at which the upstream sent
it; the delay of one that comes straight from the upstream, with as many streams, is measured too. Delays are given as
they were, and without the time for which the machine had no processor for the bench or the proxy.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from dataclasses import dataclass

from bench.served import held_up_s, served
from bench.streams import Stream, ask, source

BODY = json.dumps({"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
SETTINGS = "defaults: {window: 100000}\nserver: {max_requests: 10000}\n"
_SENT = re.compile(rb'"content":"([0-9.]+) ([0-9.]+)"')


@dataclass(frozen=True, slots=True)
class Clock:
    """The time, and for how much of it this process and the proxy waited for a processor; both in seconds."""

    pid: int

    def __call__(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter(), held_up_s() + held_up_s(self.pid)

    def stamped(self) -> bytes:
        """An event that carries them."""
        return b'data: {"choices":[{"index":0,"delta":{"content":"%.9f %.9f"}}]}\n\n' % self()


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from an upstream's sending a chunk to a client's having it; `own` without those that starved."""

    chunks: int
    p50: float
    p99: float
    own_p99: float


@dataclass(frozen=True, slots=True)
class Report:
    """Kilobytes that a stream takes in the proxy, and delays with the proxy and without it."""

    streams: int
    kb_per_stream: float
    through: Delays
    direct: Delays
    tasks_left: int


async def listen(port: int, streams: int, seconds: float, gap_s: float, clock: Clock) -> Delays:
    """Read so many streams at once, begun at random moments of the first gap."""
    delays: list[float] = []
    own: list[float] = []

    def note(chunk: bytes) -> None:
        now, starved = clock()
        for sent, before in _SENT.findall(chunk):
            delays.append(now - float(sent))
            own.append(max(0.0, delays[-1] - (starved - float(before))))

    async def one(number: int) -> None:
        await asyncio.sleep(random.Random(number).random() * gap_s)
        stream = Stream(seed=number, chunks=max(2, int(seconds / gap_s)), gap_s=gap_s)
        if not (await ask(port, stream, BODY, on_chunk=note)).whole:
            raise RuntimeError(f"stream {number} broke off")

    await asyncio.gather(*(one(number) for number in range(streams)))
    cuts = statistics.quantiles(delays, n=100)
    return Delays(len(delays), cuts[49] * 1000, cuts[98] * 1000, statistics.quantiles(own, n=100)[98] * 1000)


async def measure(streams: int, seconds: float, gap_s: float) -> Report:
    """Streams through the proxy, then as many without it."""
    async with source() as upstream, served(upstream.url, SETTINGS) as proxy:
        clock = Clock(proxy.pid)
        upstream.stamp = clock.stamped
        await listen(proxy.port, 20, 0.2, 0.05, clock)  # what is made once is not a stream's
        before = await proxy.vitals()
        running = asyncio.create_task(listen(proxy.port, streams, seconds, gap_s, clock))
        await asyncio.sleep(gap_s + seconds / 2)
        during = await proxy.vitals()
        through = await running
        direct = await listen(upstream.port, streams, seconds, gap_s, clock)
        after = await proxy.vitals()
        kb = (during.rss_mb - before.rss_mb) * 1024 / max(1, during.requests)
        return Report(during.requests, kb, through, direct, after.tasks - before.tasks)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--gap", type=float, default=1.0, help="seconds between two chunks of a stream")
    given = parser.parse_args()
    report = asyncio.run(measure(given.streams, given.seconds, given.gap))
    print(f"{report.streams} streams open at once, {report.kb_per_stream:.1f} KB of memory for each")
    for name, delays in (("through the proxy", report.through), ("without it", report.direct)):
        print(
            f"{name}: {delays.chunks} chunks, P50 {delays.p50:.2f} ms, P99 {delays.p99:.2f} ms, "
            f"{delays.own_p99:.2f} ms without the time without a processor"
        )
    added, own = report.through.p99 - report.direct.p99, report.through.own_p99 - report.direct.own_p99
    print(f"added at P99: {added:.2f} ms, {own:.2f} ms of them with a processor; tasks left: {report.tasks_left}")


if __name__ == "__main__":
    main()
