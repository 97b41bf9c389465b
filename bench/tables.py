"""Figures as tables, on a terminal and as Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table


def show(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], into: Path | None = None
) -> None:
    """Print a table; the first column is words, the others figures. It is added to the Markdown file `into` as well."""
    rows = [*rows]
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if into is not None:
        with into.open("a", encoding="utf-8") as file:
            file.write(markdown(title, head, rows))


def markdown(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same as a table of Markdown under its title."""
    lines = [f"**{title}**", "", _line(head), _line(["---", *("---:" for _ in head[1:])]), *map(_line, rows)]
    return "\n".join(lines) + "\n\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
