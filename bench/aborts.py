"""Clients that leave at random moments: how soon the upstream hears of it, and whether anything stays behind.

`python -m bench.aborts --clients 1000`. Each leaves before its answer, in it, or never gets one since the upstream is
silent; then the same conversation goes on, which a mark left behind would hold up. Time for which the machine had no
processor for the bench or the proxy is not counted.
"""

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass

from bench.served import Vitals, held_up_s, served
from bench.streams import Source, Stream, ask, judge, source

HOLD_S = 30.0  # a mark that stays makes the next request wait for so long
SETTINGS = f"defaults: {{window: 400, reserve_output: 0, policy: fifo, protect_last: 1, hold: {{wait_s: {HOLD_S}}}}}"
WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Report:
    """`late` are aborts that the upstream heard of after more than a second, or never; `held` followers that waited.

    `starved` is the share of the time for which bench and proxy waited for a processor, their mean.
    """

    aborts: int
    heard: int
    slowest_s: float
    late: int
    held: int
    before: Vitals
    after: Vitals
    left_open: int
    starved: float


@dataclass(slots=True)
class Left:
    """When a client left, and whether the upstream had its request then."""

    seed: int
    at: float


async def leave(port: int, upstream: Source, number: int) -> tuple[Left, float]:
    """Leave a stream at some moment, go on with its conversation, and tell when, and how long going on took."""
    rng = random.Random(number)
    messages = [{"role": "user", "content": f"{number} {n} " + "word " * 40} for n in range(12)]
    stream = Stream(seed=number, chunks=400, gap_s=0.1)
    asking = asyncio.create_task(ask(port, stream, _body(messages)))
    await asyncio.sleep(rng.uniform(0, 0.5))
    asking.cancel()
    await asyncio.wait({asking})
    left = Left(number, upstream.clock())
    # What the proxy has not heard of yet is in flight, so that much is waited for.
    await asyncio.sleep(WITHIN_S)
    start = time.perf_counter()
    then = Stream(seed=-number - 1, chunks=1)
    got = await ask(port, then, _body([*messages, {"role": "user", "content": "and then? " * 30}]))
    if (problem := judge(then, got)) is not None:
        raise RuntimeError(f"client {number}: {problem}")
    return left, time.perf_counter() - start


def _body(messages: list[dict[str, str]]) -> bytes:
    return json.dumps({"model": "gpt-4o", "stream": True, "messages": messages}).encode()


async def measure(clients: int, at_once: int = 25) -> Report:
    """Let so many clients leave, some at once."""
    async with source() as upstream, served(upstream.url, SETTINGS) as proxy:
        upstream.clock = lambda: time.perf_counter() - held_up_s() - held_up_s(proxy.pid)
        before, start, counted = await proxy.vitals(), time.perf_counter(), upstream.clock()
        gate = asyncio.Semaphore(at_once)

        async def one(number: int) -> tuple[Left, float]:
            async with gate:
                return await leave(proxy.port, upstream, number)

        done = await asyncio.gather(*(one(number) for number in range(clients)))
        starved = (1 - (upstream.clock() - counted) / (time.perf_counter() - start)) / 2
        after = before
        for _ in range(150):
            await asyncio.sleep(0.2)
            after = await proxy.vitals()
            if not upstream.busy and not after.requests:
                break
        # Of a request that never got to the upstream there is nothing to hear.
        waits = [upstream.gone[left.seed] - left.at for left, _ in done if left.seed in upstream.gone]
        seen = {number for number in upstream.seen if number >= 0}
        late = sum(wait > WITHIN_S for wait in waits) + len(seen - set(upstream.gone))
        held = sum(took > HOLD_S / 2 for _, took in done)
        return Report(clients, len(waits), max(waits, default=0.0), late, held, before, after, upstream.busy, starved)


def main() -> None:
    """Measure and print; exit 1 where an abort was not heard of in time, or a mark stayed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    given = parser.parse_args()
    report = asyncio.run(measure(given.clients))
    print(
        f"{report.aborts} clients left; {report.heard} when their request was upstream, which heard of it within "
        f"{report.slowest_s * 1000:.0f} ms at the latest; {report.late} later than {WITHIN_S:g} s or never"
    )
    print(f"left out is the time without a processor, {report.starved:.0%} of all")
    print(f"requests held up by a mark that stayed: {report.held}; upstream connections left: {report.left_open}")
    print(
        f"tasks {report.before.tasks} before, {report.after.tasks} after; "
        f"file descriptors {report.before.fds} before, {report.after.fds} after"
    )
    raise SystemExit(1 if report.late or report.held or report.left_open else 0)


if __name__ == "__main__":
    main()
