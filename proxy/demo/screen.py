"""What the demonstration shows of a turn: the window as a bar, and a cut as a list of what went and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Record = Mapping[str, Any]

INDENT = 10  # cells before what is said
_FIGURES = 34  # cells beside a bar
_WIDEST = 60  # cells of a full window
_STYLES = {"pinned": "magenta", "kept": "green", "notes": "yellow", "dropped": "red", "bound": "dim green"}
_FILLED = {"dropped": "░", "bound": "▒"}


def said(who: str, style: str, text: str) -> Table:
    """What somebody says, indented."""
    grid = Table.grid(padding=0)
    grid.add_column(width=INDENT)
    grid.add_column()
    grid.add_row(Text(who, style), text)
    return grid


def legend(evict: float, target: float) -> Text:
    """What the colours and the marks of the bars mean."""
    names = {"pinned": "█ pinned", "kept": "█ kept", "notes": "█ brought back", "dropped": "░ dropped now"}
    parts = [Text(f"{name}   ", _STYLES[kind]) for kind, name in names.items()]
    return Text.assemble(*parts, (f"┊ {target:.0%} target  │ {evict:.0%} cut", "dim"))


def bar(record: Record, console_width: int, *, evict: float, target: float) -> Text:
    """The window as it was sent, of its budget, and what a cut took out of it."""
    width = max(20, min(_WIDEST, console_width - INDENT - _FIGURES))
    cells = _cells(record, width)
    marks = {round(width * target): "┊", round(width * evict): "│"}
    for at in range(len(cells), width):
        cells.append((marks.get(at, " "), "dim"))
    line = Text.assemble(" " * (INDENT - 1), "▕", *cells[:width], "▏ ", _figures(record))
    line.truncate(console_width, overflow="ellipsis")
    return line


def cut(record: Record, messages: Sequence[Mapping[str, str]]) -> Table:
    """What a cut did, slot by slot."""
    took = record["overhead_ms"]["total"]
    title = f"cut by {record['policy']}: {record['tokens_before']:,} → {record['tokens_after']:,} tokens, {took:.1f} ms"
    table = Table(box=box.ROUNDED, title=title, title_justify="left", title_style="bold red", border_style="red")
    table.add_column("dropped" if record["slots_evicted"] else "", no_wrap=True)
    table.add_column("tokens", justify="right")
    table.add_column("says", no_wrap=True, overflow="ellipsis", ratio=1, style="dim")
    table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1, style="dim")
    table.expand = True
    for slot in record["slots"]:
        if slot["action"] == "keep":
            continue
        if slot["index"] is None:
            came = slot["action"] != "evict"
            name = Text(f"{'+' if came else '-'} {_note(slot)}", _STYLES["notes" if came else "dropped"])
            text = ""
        else:
            name = Text(f"- {_numbers(slot)} {slot['role']}", _STYLES["dropped"])
            text = " ".join(messages[slot["messages"][0]]["content"].split())
        table.add_row(name, str(slot["tokens"]), Text(text), Text(slot["reason"] or ""))
    return table


def brought_back(record: Record) -> list[Text]:
    """The notes that a request got, where nothing was cut for it."""
    return [
        Text(f"{' ' * INDENT}+ {_note(slot)}, {slot['tokens']} tokens: {slot['reason']}\n", _STYLES["notes"])
        for slot in record["slots"]
        if slot["action"] == "recall"
    ]


class Typing:
    """Prints a text as it comes, word by word, in lines that begin below one another; a long one's first lines."""

    def __init__(self, console: Console, style: str, lines: int | None) -> None:
        self._console = console
        self._style = style
        self._lines = lines
        self._line, self._column = 1, INDENT

    def take(self, piece: str) -> None:
        """The next piece, with the space before it."""
        word = piece.strip()
        if self._lines is not None and self._line > self._lines:
            return
        if self._column + len(word) + 3 > self._console.width:
            self._line += 1
            if self._lines is not None and self._line > self._lines:
                self._print(" …")
                return
            self._print("\n" + " " * INDENT)
            self._column = INDENT
        text = word if self._column == INDENT else f" {word}"
        self._column += len(text)
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(Text(text, self._style), end="", soft_wrap=True)


def _note(slot: Record) -> str:
    return f"note of {_numbers(slot)}"


def _numbers(slot: Record) -> str:
    return ", ".join(f"#{index}" for index in slot["messages"])


def _cells(record: Record, width: int) -> list[tuple[str, str]]:
    """One filled cell for each share of the budget, by what fills it."""
    tokens = dict.fromkeys(_STYLES, 0.0)
    budget = record["budget"] or 1
    for slot in record["slots"]:
        tokens[_kind(slot)] += slot["tokens"]
    if record["tokens_after"] is None:
        tokens["bound"] = (record["utilization_before"] or 0.0) * budget
    else:  # of a prompt that goes as it is the slots are not listed
        tokens["pinned"] = record["pinned_tokens"] or 0
        tokens["kept"] = record["tokens_after"] - tokens["pinned"] - tokens["notes"]
    return [
        (_FILLED.get(kind, "█"), style)
        for kind, style in _STYLES.items()
        for _ in range(round(width * tokens[kind] / budget))
    ]


def _kind(slot: Record) -> str:
    if slot["action"] in ("evict", "summarize"):
        return "dropped"
    if slot["index"] is None:
        return "notes"
    return "pinned" if slot["pinned"] else "kept"


def _figures(record: Record) -> Text:
    if record["tokens_after"] is None:
        return Text(f"at most {record['utilization_before'] or 0.0:.0%}: not counted", "dim")
    spared = record["tokens_before"] - record["tokens_after"]
    return Text.assemble(
        f"{record['tokens_after']:,} of {record['budget']:,}", (f", {spared:,} left out" if spared > 0 else "", "dim")
    )
