"""Figures as tables on a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def show(console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is words, the others figures."""
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)
