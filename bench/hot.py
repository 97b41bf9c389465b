"""What a request of a known conversation costs, by its length, and what many conversations take in memory.

    python -m bench.hot [--conversations 10000] [--profile]

A hot request has one exchange more than the one before; everything else was read, counted and decided about already.
So it should cost what the bytes cost that it carries: `µs/KB` stays the same from row to row. Times are of the
processor, all threads together.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import random
import resource
import statistics
import sys
import time
from itertools import accumulate
from pathlib import Path

from bench.progress import bar
from policies import registry
from proxy.conversations import Conversations
from proxy.pipeline import Pipeline, aside
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.route import Route
from proxy.serving import GARBAGE_FROM
from proxy.stores.opening import open_store

LENGTHS = (10, 100, 1_000, 5_000)
TOKENS = 119  # about what a message here costs
BOUND_MB = 400
"""The memory that a worker stays under with any number of conversations at its default bounds, in MB (10**6 bytes)."""

# As many as people have, with few that are frequent: what messages have in common decides what some policies cost.
_SYLLABLES = ("ti", "ber", "cra", "pi", "lot", "car", "go", "bu", "oy", "an", "chor", "led", "ger", "quay", "sig", "na")
_WORDS = [first + second + third for first in _SYLLABLES for second in _SYLLABLES for third in _SYLLABLES]
_FREQUENT = [1 / (rank + 10) for rank in range(len(_WORDS))]  # Zipf and Mandelbrot
_SUMS = list(accumulate(_FREQUENT))


def message(number: int, chance: random.Random, size: int) -> bytes:
    """One message of about `size` words, as a client's JSON."""
    role = "assistant" if number % 2 else "user"
    words = " ".join(chance.choices(_WORDS, cum_weights=_SUMS, k=size))
    return json.dumps({"role": role, "content": f"{number}: {words}."}).encode()


def body(messages: list[bytes]) -> bytes:
    """A chat request."""
    return b'{"model": "gpt-4o", "messages": [' + b", ".join(messages) + b"]}"


def talk(length: int, seed: int, size: int = 40) -> list[bytes]:
    """A conversation of `length` messages."""
    chance = random.Random(seed)
    return [message(number, chance, size) for number in range(length)]


def route(tokens: int) -> Route:
    """A route on which a conversation of so many tokens is cut."""
    return Route(name="bench", upstream="none", policy=registry.create("priority", {}), window=tokens, reserve_output=0)


class Worker:
    """A pipeline on a store of its own."""

    def __init__(self) -> None:
        self.store = open_store("memory://")
        self.conversations = Conversations(self.store, salt=b"bench", ttl_s=86_400)
        self.pipeline = Pipeline(lambda route, model: route.window, self.conversations)

    async def send(self, through: Route, content: bytes) -> Outcome:
        """One request and the end of its turn."""
        outcome = await self.pipeline.run(Incoming(route=through, body=content))
        assert not outcome.faults
        if outcome.turn is not None:
            await outcome.turn.end()
        return outcome


async def hot(length: int, recorder: cProfile.Profile | None) -> None:
    """Print what hot requests of `length` messages cost, and the cold ones before them."""
    worker = Worker()
    through = route(int(max(length, 40) * TOKENS / 0.94))
    cold, took, sizes = [], [], []
    for number in range(max(4, min(60, 8_000 // length))):
        messages = talk(length, number)
        for cut in (4, 2):
            start = time.process_time()
            await worker.send(through, body(messages[:-cut]))
            cold.append(time.process_time() - start)
        content = body(messages)
        gc.collect()  # where the collector happens to look says nothing about the request at hand
        if recorder is not None:
            recorder.enable()
        start = time.process_time()
        outcome = await worker.send(through, content)
        elapsed = time.process_time() - start
        if recorder is not None:
            recorder.disable()
        if outcome.counted and outcome.trigger is None:
            took.append(elapsed)
            sizes.append(len(content))
    us, kb = statistics.median(took) * 1e6, statistics.median(sizes) / 1000
    first = statistics.median(cold[::2]) * 1e3
    print(f"{length:>8} {kb:>9.1f} {first:>9.1f} {us / 1e3:>9.2f} {us / kb:>9.1f} {us / length:>9.1f} {len(took):>9}")
    if recorder is not None:
        pstats.Stats(recorder).sort_stats("tottime").print_stats(28)


async def many(conversations: int) -> None:
    """Print what so many conversations of 100 messages leave in memory."""
    worker = Worker()
    through = route(3_400)
    before = resident_mb()
    start = time.perf_counter()
    with bar("conversations", conversations) as advance:
        for number in range(conversations):
            messages = talk(100, number, size=12)
            for length in (98, 100):
                await worker.send(through, body(messages[:length]))
            advance()
    took = time.perf_counter() - start
    now = resident_mb()
    print(f"{conversations} conversations of 100 messages in {took:.0f} s: {before:.0f} MB before, {now:.0f} MB after")
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6:.0f} MB, bound {BOUND_MB} MB\n")
    if now > BOUND_MB:
        raise SystemExit(f"memory: {now:.0f} MB is over the bound of {BOUND_MB} MB")


def resident_mb() -> float:
    """Memory that the process has in use now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=10_000, help="0 leaves memory out")
    parser.add_argument("--profile", action="store_true", help="print where the time of hot requests goes")
    asked = parser.parse_args()
    gc.set_threshold(GARBAGE_FROM)  # as where it serves
    if asked.conversations:  # first, while nothing else has been in memory
        await many(asked.conversations)
        gc.collect()
        gc.freeze()
    columns = ("messages", "KB", "cold ms", "hot ms", "µs/KB", "µs/msg", "requests")
    print(f"{columns[0]:>8} " + " ".join(f"{name:>9}" for name in columns[1:]))
    if asked.profile:
        aside.INLINE_BYTES = sys.maxsize  # what runs on other threads is not seen
    for length in LENGTHS:
        await hot(length, cProfile.Profile() if asked.profile else None)


if __name__ == "__main__":
    asyncio.run(main())
