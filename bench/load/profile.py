"""Where the time of a request goes: `python -m bench.load.profile [--only "2 KB"]`.

trimtab runs under cProfile, which sees its event loop and makes everything slower: shares say something, milliseconds
do not. What is built in counts for who calls it, a system call too. Threads, which write audit records and read large
bodies, are apart: their share is that of the process's time, as the kernel counts it.
"""

import pstats
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.load import servers
from bench.load.client import Connection
from bench.load.requests import LOADS, Load

PARTS = {  # by what stands in a file's path, the first that fits
    "/uvicorn/": "uvicorn, httptools",
    "/proxy/http/": "own HTTP: heads, bodies, header fields",
    "/aiohttp/": "aiohttp, httpx: the upstream's connection",
    "/httpx": "aiohttp, httpx: the upstream's connection",
    "/multidict/": "aiohttp, httpx: the upstream's connection",
    "/yarl/": "aiohttp, httpx: the upstream's connection",
    "/proxy/upstream/": "own upstream: connections, relay",
    "/proxy/wire/": "reading messages",
    "/proxy/tokens/": "counting",
    "/tiktoken/": "counting",
    "/proxy/conversations/": "conversations and state",
    "/proxy/stores/": "conversations and state",
    "/proxy/pipeline/": "deciding",
    "/policies/": "deciding",
    "/proxy/streaming/": "reading replies",
    "/proxy/audit/": "audit and metrics",
    "/proxy/metrics/": "audit and metrics",
    "/prometheus_client/": "audit and metrics",
    "/proxy/": "gateway and exchange",
    "/asyncio/": "asyncio, uvloop",
    "/uvloop/": "asyncio, uvloop",
}
OTHER = "the rest"


def part(path: str) -> str:
    """The part of a request's way that a source file belongs to."""
    return next((name for piece, name in PARTS.items() if piece in path), OTHER)


def shares(stats: dict[Any, Any]) -> dict[str, float]:
    """The share of the time spent by each part, the largest first, from what `pstats` holds."""
    spent: dict[str, float] = defaultdict(float)
    for (path, _, _), (_, _, own_s, _, callers) in stats.items():
        if path != "~":
            spent[part(path)] += own_s
        else:
            for (caller, _, _), (_, _, from_there_s, _) in callers.items():
                spent[part(caller)] += from_there_s
    total = sum(spent.values())
    return {name: spent_s / total for name, spent_s in sorted(spent.items(), key=lambda each: -each[1])}


def threads(pid: int) -> dict[str, float]:
    """Processor seconds of the process's threads: the first, and all others."""
    seconds: dict[str, float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds = int((task / "schedstat").read_text().split()[0])
        seconds["event loop" if task.name == str(pid) else "threads"] += nanoseconds / 1e9
    return seconds


async def ask(port: int, asked: Load, rounds: int) -> None:
    """Send so many requests, one after the other."""
    connection = Connection(port)
    await connection.open()
    for _, body in zip(range(rounds), asked.bodies(), strict=False):
        await connection.post(body)
    connection.close()


def main(
    only: Annotated[str, typer.Option(help="the first kind of requests with this in its name")] = "2 KB",
    rounds: Annotated[int, typer.Option(help="requests")] = 2000,
) -> None:
    """Ask trimtab, and print by parts what it spent."""
    asked = next((asked for asked in LOADS if only in asked.name), None)
    if asked is None:
        raise typer.BadParameter(f"--only: must be in one of {', '.join(each.name for each in LOADS)}, got {only!r}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        upstream, port, kept = servers.free_port(), servers.free_port(), folder / "profile"
        config = folder / "config.yaml"
        config.write_text(servers.settings(upstream, folder, 1))
        commands = (f"-m bench.load.upstream {upstream}", f"-m bench.load.profile_serve {config} {port} {kept}")
        running = [
            subprocess.Popen([sys.executable, *shlex.split(command)], stderr=subprocess.DEVNULL) for command in commands
        ]
        try:
            for where, process in zip((upstream, port), running, strict=True):
                servers.wait_for(where, process)
            uvloop.run(ask(port, asked, max(10, rounds // 10)))
            before = threads(running[1].pid)
            running[1].send_signal(signal.SIGUSR1)
            uvloop.run(ask(port, asked, rounds))
            after = threads(running[1].pid)
            running[1].send_signal(signal.SIGUSR2)
            until = time.monotonic() + 30
            while not kept.exists() and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGTERM)
                process.wait(30)
        found = shares(pstats.Stats(str(kept)).stats)  # type: ignore[attr-defined]
    taken = {name: after[name] - before[name] for name in after}
    table = Table(f"{asked.name}: part", "share of the event loop's time")
    for place, share in found.items():
        table.add_row(place, f"{share:.0%}")
    Console(width=120).print(table)
    print(f"of the processor's time, other threads took {taken.get('threads', 0.0) / sum(taken.values()):.0%}")


if __name__ == "__main__":
    typer.run(main)
