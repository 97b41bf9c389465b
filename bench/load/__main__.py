"""What a proxy adds to its upstream, in turn with others, in one run: `python -m bench.load [--peer NAME=COMMAND]`."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.load import measuring, servers
from bench.load.measuring import Row
from bench.load.requests import LOADS
from bench.load.servers import DIRECT, Server

COLUMNS = {
    "p50_ms": "P50 ms",
    "added_p50_ms": "added P50 ms",
    "added_p99_ms": "added P99 ms",
    "per_s": "requests/s",
    "cpu_ms": "CPU ms",
}


async def measure(
    running: dict[str, Server], rounds: int, seconds: float, streams: int, only: str
) -> dict[str, dict[str, Row]]:
    """Every figure, by row and server."""
    rows: dict[str, dict[str, Row]] = {}
    for asked in track(LOADS, "measuring", transient=True):
        if only in asked.name:
            some = rounds if asked.size < 100_000 else max(20, rounds // 4)
            rows[asked.name] = await measuring.load(running, asked, some, seconds)
    if streams and only in "streams":
        rows |= await measuring.streams(running, max(5, rounds // 50), 1)
        rows |= await measuring.streams(running, 2, streams)
    return rows


def table(rows: dict[str, dict[str, Row]]) -> Table:
    """The rows for people."""
    made = Table("request", "server", *COLUMNS.values())
    for label, by_server in rows.items():
        for name, row in by_server.items():
            cells = (f"{row[c]:.{0 if c == 'per_s' else 2}f}" if c in row else "" for c in COLUMNS)
            made.add_row(label if name == DIRECT else "", name, *cells)
        made.add_section()
    return made


def main(
    rounds: Annotated[int, typer.Option(help="requests of each kind, a quarter of the large ones")] = 400,
    seconds: Annotated[float, typer.Option(help="how long requests a second are counted")] = 3.0,
    streams: Annotated[int, typer.Option(help="streams that are open at once; 0: none")] = 100,
    workers: Annotated[int, typer.Option(help="of trimtab")] = 1,
    peer: Annotated[list[str], typer.Option(help="NAME=COMMAND with {port}, {upstream} and {folder} in it")] = [],  # noqa: B006
    only: Annotated[str, typer.Option(help="kinds of requests with this in their name")] = "",
    out: Annotated[Path | None, typer.Option(help="JSON with every figure")] = None,
    config: Annotated[Path | None, typer.Option(help="of trimtab, with {upstream} for the port")] = None,
) -> None:
    """Start an upstream, trimtab and its peers in front of it, measure them, print a table, and write JSON."""
    try:
        peers = dict(map(servers.peer, peer))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with tempfile.TemporaryDirectory() as folder, servers.serving(peers, Path(folder), config, workers) as running:
        rows = uvloop.run(measure(running, rounds, seconds, streams, only))
    Console(width=120).print(table(rows))
    if out is not None:
        out.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    typer.run(main)
