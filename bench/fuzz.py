"""Fuzzing: the whole chat path with bodies grown from valid ones, and the reader of streams under every split.

`python -m bench.fuzz --bodies 200000 --streams 2000` takes one core. No answer may be a 5xx or take more than a second,
nothing invalid that the client did not send may go upstream, and what was not trimmed must leave as it came. A case
that fails is shrunk and kept in `tests/cases/fuzz`, which the tests replay.
"""

import argparse
import asyncio
import base64
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice, pairwise
from pathlib import Path

from bench.fuzz_bodies import Case, case
from bench.fuzz_front import Front, front
from bench.served import held_up_s
from bench.streams import GARBAGE, Stream
from proxy.streaming import Reader

KEPT = Path(__file__).parents[1] / "tests" / "cases" / "fuzz"
SHRINKING = 2_000  # cases that are tried to make one smaller
TOLD_EVERY = 5_000  # seeds
TRIES = 3  # a busy machine is slow now and then; a slow case is slow each time


@dataclass(slots=True)
class Found:
    """Failures by what is wrong, and the smallest case of each."""

    bodies: int = 0
    slowest_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, Case] = field(default_factory=dict)


async def bodies(first: int, number: int, *, until: float | None = None) -> Found:
    """Try the cases of so many seeds, at most until a moment of time.perf_counter."""
    found = Found()
    async with front() as chat:
        for seed in range(first, first + number):
            if until is not None and time.perf_counter() > until:
                break
            made = case(seed)
            start = time.perf_counter() - held_up_s()
            problem = await confirmed(chat, made)
            if problem is None:
                found.slowest_s = max(found.slowest_s, time.perf_counter() - held_up_s() - start)
            found.bodies += 1
            if seed % TOLD_EVERY == TOLD_EVERY - 1:
                print(f"seed {seed}: {found.bodies} bodies, {len(found.failures)} kinds of failures", flush=True)
            if problem is not None and problem not in found.failures:
                print(f"seed {seed}: {problem}", flush=True)
                found.failures[problem] = await shrunk(made, lambda smaller: confirmed(chat, smaller), problem)
        found.counts = chat.counts
    return found


async def confirmed(chat: Front, made: Case) -> str | None:
    """What is wrong with a case, each time that it is tried; how long it took is left out."""
    problem = None
    for _ in range(TRIES):
        if (problem := await chat.problem(made)) is None:
            return None
        if not problem.startswith(("took", "no answer")):
            break
    return None if problem is None else problem.split(" (")[0]


async def shrunk(made: Case, fails: Callable[[Case], Awaitable[str | None]], problem: str) -> Case:
    """The smallest case, within reach, that fails in the same way."""
    left, smaller = SHRINKING, True
    while smaller:
        smaller = False
        for tried in islice(_smaller(made), left):
            left -= 1
            if await fails(tried) == problem:
                made, smaller = tried, True
                break
    return made


def _smaller(made: Case) -> Iterator[Case]:
    """Cases with something left out: follow-ups, header fields, messages, bytes."""
    if made.more:
        yield replace(made, more=())
    for at in range(len(made.headers)):
        yield replace(made, headers=made.headers[:at] + made.headers[at + 1 :])
    yield from (replace(made, body=body) for body in _fewer_messages(made.body))
    size = len(made.body) // 2
    while size and not made.more:
        for start in range(0, len(made.body), size):
            yield replace(made, body=made.body[:start] + made.body[start + size :])
        size //= 2


def _fewer_messages(body: bytes) -> Iterator[bytes]:
    try:
        request = json.loads(body)
        messages = request["messages"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    size = len(messages) // 2 if isinstance(messages, list) else 0
    while size:
        for start in range(0, len(messages), size):
            yield json.dumps({**request, "messages": messages[:start] + messages[start + size :]}).encode()
        size //= 2


def keep(problem: str, made: Case, folder: Path = KEPT) -> Path:
    """Write a case down for the tests to replay."""
    coded = [base64.b64encode(body).decode() for body in (made.body, *made.more)]
    kept = {"problem": problem, "route": made.route, "headers": made.headers, "bodies": coded}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{sha256(made.body).hexdigest()[:12]}.json"
    file.write_text(json.dumps(kept, indent=1) + "\n")
    return file


def kept(file: Path) -> Case:
    """A case that was written down."""
    read = json.loads(file.read_text())
    body, *more = (base64.b64decode(coded) for coded in read["bodies"])
    headers = tuple((name, value) for name, value in read["headers"])
    return Case(route=read["route"], body=body, headers=headers, more=tuple(more))


def splits(seed: int) -> str | None:
    """What is read otherwise of a stream that comes in two pieces, byte by byte or in random ones; None: nothing."""
    rng = random.Random(seed)
    body = Stream(seed=seed, chunks=rng.randint(0, 4), fault=rng.choice(["", "garbage"])).body
    for _ in range(rng.choice([0, 0, 1, 3])):
        at = rng.randint(0, len(body))
        bite = rng.choice(
            [b"\r", b"\n", b"\r\n", b"\r\r", b": ping\n\n", b"event: error\n", b"data:", GARBAGE, b"\xef\xbb\xbf"]
        )
        body = body[:at] + bite + body[at + rng.randint(0, 9) :]
    whole = _read([body])
    for at in range(1, len(body)):
        if _read([body[:at], body[at:]]) != whole:
            return f"split at {at}: {body!r}"
    if _read([body[at : at + 1] for at in range(len(body))]) != whole:
        return f"byte by byte: {body!r}"
    cuts = [0, *sorted(rng.choices(range(len(body) + 1), k=9)), len(body)]
    if _read([body[a:b] for a, b in pairwise(cuts)]) != whole:
        return f"cut at {cuts}: {body!r}"
    return None


def _read(pieces: list[bytes]) -> object:
    reader = Reader("text/event-stream", "")
    for piece in pieces:
        reader.feed(piece)
    return reader.result()


def main() -> None:
    """Fuzz and print; exit 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int, default=200_000)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long")
    given = parser.parse_args()
    start = time.perf_counter()
    until = None if given.seconds is None else start + given.seconds
    found = asyncio.run(bodies(given.first, given.bodies, until=until))
    print(
        f"{found.bodies} bodies in {time.perf_counter() - start:.0f} s, "
        f"the slowest {found.slowest_s * 1000:.0f} ms; {found.counts}"
    )
    for problem, made in found.failures.items():
        print(f"{problem}: {keep(problem, made)}")
    broken = [problem for seed in range(given.streams) if (problem := splits(seed)) is not None]
    print(f"{given.streams} streams under every split: {len(broken)} read differently", *broken[:3], sep="\n")
    raise SystemExit(1 if found.failures or broken else 0)


if __name__ == "__main__":
    main()
