"""How long requests take, how many go through, and what they cost, one server in turn with the others."""

import asyncio
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice

from bench.load.client import Connection
from bench.load.requests import Load, chat
from bench.load.servers import DIRECT, Server

Row = dict[str, float]
WARM_UP = 0.1  # share of the rounds that are not counted
NEW_FROM = 1_000_000  # the number of the first body that is new to a server which was asked one at a time before
SPREAD_S = 0.5  # in which streams begin; each goes on for a second
AT_ONCE = 8  # connections, where requests a second are counted


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one thing, many times over."""

    values: list[float]

    def p50(self) -> float:
        """The median."""
        return statistics.median(self.values)

    def p99(self) -> float:
        """What 99 of 100 stay under."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


async def load(servers: Mapping[str, Server], asked: Load, rounds: int, seconds: float) -> dict[str, Row]:
    """Added latency one request at a time; then requests a second and processor time with several at once."""
    times = await latency(servers, asked, rounds)
    rows = {name: added(times[DIRECT], own) for name, own in times.items()}
    for name, server in servers.items():
        rows[name] |= await throughput(server, asked, seconds)
    return rows


async def latency(servers: Mapping[str, Server], asked: Load, rounds: int) -> dict[str, Times]:
    """The times of each server, which are asked the same in turn."""
    connections = {name: Connection(server.port) for name, server in servers.items()}
    for connection in connections.values():
        await connection.open()
    times: dict[str, list[float]] = {name: [] for name in servers}
    unheard = int(rounds * WARM_UP)
    for number, body in zip(range(rounds + unheard), asked.bodies(), strict=False):
        for name, connection in connections.items():
            taken = await connection.post(body)
            if number >= unheard:
                times[name].append(taken * 1000)
    for connection in connections.values():
        connection.close()
    return {name: Times(values) for name, values in times.items()}


async def throughput(server: Server, asked: Load, seconds: float) -> Row:
    """Requests a second over AT_ONCE connections, and the processor time of each in milliseconds.

    Conversations that grow do so on a connection each, as nobody goes on from an answer that is still to come.
    """
    done = 0
    talks = [
        list(islice(asked.bodies(first=NEW_FROM + 1000 * number), 1 if asked.size < 100_000 else 16))
        for number in range(AT_ONCE)
    ]
    connections = [Connection(server.port) for _ in talks]
    for connection, bodies in zip(connections, talks, strict=True):
        await connection.open()
        if not asked.fresh:
            await connection.post(bodies[0])
    start, cpu = time.perf_counter(), server.cpu_s()
    until = start + seconds

    async def one(connection: Connection, bodies: list[bytes]) -> None:
        nonlocal done
        for body in bodies if asked.fresh else cycle(bodies):
            if time.perf_counter() >= until:
                break
            await connection.post(body)
            done += 1

    await asyncio.gather(*map(one, connections, talks))
    taken = time.perf_counter() - start
    for connection in connections:
        connection.close()
    return {"per_s": done / taken, "cpu_ms": (server.cpu_s() - cpu) * 1000 / done}


async def streams(servers: Mapping[str, Server], rounds: int, open_at_once: int) -> dict[str, dict[str, Row]]:
    """What is added to a stream's first byte and to each chunk, with so many streams open.

    They begin one after the other within SPREAD_S seconds. `cpu_ms` is the processor time of a whole stream.
    """
    body = chat(2_000, stream=True)
    first: dict[str, list[float]] = {name: [] for name in servers}
    chunks: dict[str, list[float]] = {name: [] for name in servers}

    cpu_s = dict.fromkeys(servers, 0.0)

    async def one(name: str, port: int, number: int) -> None:
        await asyncio.sleep(number * SPREAD_S / open_at_once)
        connection = Connection(port)
        await connection.open()
        begun, delays = await connection.stream(body)
        connection.close()
        first[name].append(begun * 1000)
        chunks[name] += [delay * 1000 for delay in delays]

    for _ in range(rounds):
        for name, server in servers.items():
            before = server.cpu_s()
            await asyncio.gather(*(one(name, server.port, number) for number in range(open_at_once)))
            cpu_s[name] += server.cpu_s() - before
    direct = Times(first[DIRECT]), Times(chunks[DIRECT])
    cost = {name: 1000 * spent / (rounds * open_at_once) for name, spent in cpu_s.items()}
    label = f"{open_at_once} streams" if open_at_once > 1 else "stream"
    return {
        f"{label}, first byte": {
            name: added(direct[0], Times(first[name])) | {"cpu_ms": cost[name]} for name in servers
        },
        f"{label}, each chunk": {name: added(direct[1], Times(chunks[name])) for name in servers},
    }


def added(direct: Times, own: Times) -> Row:
    """A server's median and what it adds to the upstream's own."""
    return {"p50_ms": own.p50(), "added_p50_ms": own.p50() - direct.p50(), "added_p99_ms": own.p99() - direct.p99()}
