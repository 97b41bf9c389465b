"""Put what the suite has measured into the documentation: `python -m bench.publish FOLDER [FILE...]`.

In each FILE (README.md and docs/benchmarks.md by default), what stands between `<!-- bench NAME -->` and
`<!-- /bench -->` is replaced by the table of that step of the suite, and the command that made it. A step that is not
in FOLDER leaves its place as it is, and that is said.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

FILES = (Path("README.md"), Path("docs/benchmarks.md"))
_PLACE = re.compile(r"(<!-- bench (\S+) -->\n).*?(<!-- /bench -->)", re.DOTALL)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    files: Annotated[list[Path] | None, typer.Argument(exists=True, dir_okay=False)] = None,
) -> None:
    """Write the measurements of a folder into files."""
    for file in files or FILES:
        before = file.read_text(encoding="utf-8")
        after, missing = filled(before, folder)
        if after != before:
            file.write_text(after, encoding="utf-8")
        left = f"; left as it was: {', '.join(missing)}" if missing else ""
        print(f"{file}: {len(_PLACE.findall(before)) - len(missing)} tables{left}")


def filled(text: str, folder: Path) -> tuple[str, Sequence[str]]:
    """The text with the tables of a folder, and the names of those that are not there."""
    missing: list[str] = []

    def fill(place: re.Match[str]) -> str:
        begin, name, end = place[1], place[2], place[3]
        table = _table(folder, name)
        if table is None:
            missing.append(name)
            return place[0]
        return f"{begin}\n{table}\n{end}"

    return _PLACE.sub(fill, text), missing


def _table(folder: Path, name: str) -> str | None:
    """A finished step's table as Markdown, else what it printed."""
    command, done = folder / f"{name}.command", folder / f"{name}.done"
    if not (command.exists() and done.exists()):
        return None
    markdown, printed = folder / f"{name}.md", folder / f"{name}.txt"
    shown = f"`{command.read_text(encoding='utf-8').strip()}`"
    if markdown.exists():
        return f"{markdown.read_text(encoding='utf-8').strip()}\n\n{shown}\n"
    return f"{shown}\n\n```text\n{printed.read_text(encoding='utf-8').strip()}\n```\n"


if __name__ == "__main__":
    app()
