"""What a proxy adds to its upstream, in turn with others, in one run: `python -m bench.load [--peer NAME=COMMAND]`."""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.load import measuring, servers
from bench.load.measuring import Row
from bench.load.peers import KNOWN, named
from bench.load.requests import HYBRID, LOADS, TRIMMED_BY_HYBRID
from bench.load.servers import DIRECT, OURS, Server
from bench.progress import bar

COLUMNS = {
    "p50_ms": "P50 ms",
    "added_p50_ms": "added P50 ms",
    "added_p99_ms": "added P99 ms",
    "per_s": "requests/s",
    "cpu_ms": "CPU ms",
    "model_ms": "of which model",
}


async def measure(
    running: dict[str, Server], rounds: int, seconds: float, streams: int, only: str, *, hybrid: bool
) -> dict[str, dict[str, Row]]:
    """Every figure, by row and server."""
    rows: dict[str, dict[str, Row]] = {}
    asked_for = [asked for asked in ((*LOADS, TRIMMED_BY_HYBRID) if hybrid else LOADS) if only in asked.name]
    with bar("rows", len(asked_for) + 2 * bool(streams and only in "streams")) as advance:
        for asked in asked_for:
            some = rounds if asked.size < 100_000 else max(20, rounds // 4)
            rows[asked.name] = await measuring.load(running, asked, some, seconds)
            advance()
        if streams and only in "streams":
            rows |= await measuring.streams(running, max(5, rounds // 50), 1)
            advance()
            rows |= await measuring.streams(running, 2, streams)
            advance()
    return rows


def model_ms(audit: Path) -> float:
    """The median of what requests on the route `hybrid` waited for vectors, in milliseconds, as their records say."""
    records = map(json.loads, audit.read_text().splitlines())
    waited = [r["overhead_ms"].get("gather", 0.0) for r in records if r["event"] == "decision" and r["model"] == HYBRID]
    return float(statistics.median(waited))


def table(rows: dict[str, dict[str, Row]]) -> Table:
    """The rows for people."""
    columns = [key for key in COLUMNS if any(key in row for by_server in rows.values() for row in by_server.values())]
    made = Table("request", "server", *(COLUMNS[key] for key in columns))
    for label, by_server in rows.items():
        for name, row in by_server.items():
            cells = (f"{row[key]:.{0 if key == 'per_s' else 2}f}" if key in row else "" for key in columns)
            made.add_row(label if name == DIRECT else "", name, *cells)
        made.add_section()
    return made


def markdown(rows: dict[str, dict[str, Row]]) -> str:
    """What each server adds, side by side: milliseconds at P50 and P99, of a processor, then requests a second."""
    names = [name for name in next(iter(rows.values())) if name != DIRECT]
    lines = [
        f"| added P50 / P99 ms (processor ms), requests/s | {' | '.join(names)} |",
        "| --- |" + " --: |" * len(names),
    ]
    for label, by_server in rows.items():
        cells = []
        for name in names:
            row = by_server[name]
            rate = f", {row['per_s']:,.0f}/s" if "per_s" in row else ""
            cpu = f" ({row['cpu_ms']:.2f})" if "cpu_ms" in row else ""
            cells.append(f"{row['added_p50_ms']:.2f} / {row['added_p99_ms']:.2f}{cpu}{rate}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(
    rounds: Annotated[int, typer.Option(help="requests of each kind, a quarter of the large ones")] = 400,
    seconds: Annotated[float, typer.Option(help="how long requests a second are counted")] = 3.0,
    streams: Annotated[int, typer.Option(help="streams that are open at once; 0: none")] = 100,
    workers: Annotated[int, typer.Option(help="of trimtab")] = 1,
    peer: Annotated[
        list[str], typer.Option(help=f"{', '.join(KNOWN)}; or NAME=COMMAND with {{port}}, {{upstream}}, {{folder}}")
    ] = [],  # noqa: B006
    peers: Annotated[Path | None, typer.Option(help="folder with a virtual environment for each peer")] = None,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="also what the policy hybrid adds, and its model")] = False,
    only: Annotated[str, typer.Option(help="kinds of requests with this in their name")] = "",
    out: Annotated[Path | None, typer.Option(help="JSON with every figure")] = None,
    written: Annotated[Path | None, typer.Option("--markdown", help="table with what each server adds")] = None,
    config: Annotated[Path | None, typer.Option(help="of trimtab, with {upstream} for the port")] = None,
) -> None:
    """Start an upstream, trimtab and its peers in front of it, measure them, print a table, and write JSON."""
    try:
        chosen = dict(named(each, peers) for each in peer)
        if taken := chosen.keys() & {DIRECT, OURS}:
            raise ValueError(f"--peer: must have another name than {taken.pop()!r}")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.serving(chosen, Path(folder), config, workers, hybrid=hybrid) as running,
    ):
        rows = uvloop.run(measure(running, rounds, seconds, streams, only, hybrid=hybrid))
        if hybrid and TRIMMED_BY_HYBRID.name in rows and config is None:
            rows[TRIMMED_BY_HYBRID.name][OURS]["model_ms"] = model_ms(servers.audit_file(Path(folder)))
    Console(width=120).print(table(rows))
    if out is not None:
        out.write_text(json.dumps(rows, indent=2))
    if written is not None:
        written.write_text(markdown(rows))


if __name__ == "__main__":
    typer.run(main)
