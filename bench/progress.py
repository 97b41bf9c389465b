"""A bar on stderr for what takes long: what is done, how long it took, and about how long the rest will take.

Where the environment names a file as `BENCH_PROGRESS`, it is written there instead, one JSON line `[what, done, of]`
each time, for who shows the bars of several processes.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[..., None]
"""Counts one step as done, or as many as it is given."""

TOLD = "BENCH_PROGRESS"
EVERY_S = 0.2


@contextmanager
def bar(description: str, total: int) -> Iterator[Advance]:
    """The bar of so many steps, gone when they are done."""
    told = os.environ.get(TOLD)
    if told:
        yield _teller(Path(told), description, total)
        return
    with Progress(*columns(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)

        def advance(steps: int = 1) -> None:
            progress.advance(task, steps)

        yield advance


def columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn | TimeRemainingColumn, ...]:
    """What a bar shows."""
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )


def told(path: Path) -> tuple[str, int, int] | None:
    """What a process last told there: what it does, how much of it is done, and of how much; None before it did."""
    try:
        lines = path.read_bytes().splitlines()
        what, done, of = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return None
    return str(what), int(done), int(of)


def _teller(path: Path, description: str, total: int) -> Advance:
    done, before = 0, 0.0

    def advance(steps: int = 1) -> None:
        nonlocal done, before
        done += steps
        now = time.monotonic()
        if now - before >= EVERY_S or done >= total:
            before = now
            path.write_text(json.dumps([description, done, total]) + "\n", encoding="utf-8")

    advance(0)
    return advance
