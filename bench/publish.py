"""Put what the suite has measured into the documentation: `python -m bench.publish FOLDER [FILE...]`.

In each FILE (README.md and docs/benchmarks.md by default), what stands between `<!-- bench NAME -->` and
`<!-- /bench -->` is replaced by the table of that step of the suite, and the command that made it. A NAME that ends in
`.png` is a chart, which is copied to docs/images. What is not in FOLDER leaves its place as it is, and that is said.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bench.quality.charts import TITLES

FILES = (Path("README.md"), Path("docs/benchmarks.md"))
IMAGES = Path("docs/images")
_PLACE = re.compile(r"(<!-- bench (\S+) -->\n).*?(<!-- /bench -->)", re.DOTALL)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    files: Annotated[list[Path] | None, typer.Argument(exists=True, dir_okay=False)] = None,
    images: Annotated[Path, typer.Option(help="The folder for the charts.")] = IMAGES,
) -> None:
    """Write the measurements of a folder into files."""
    for file in files or FILES:
        before = file.read_text(encoding="utf-8")
        after, missing = filled(before, folder, images, file.parent)
        if after != before:
            file.write_text(after, encoding="utf-8")
        left = f"; left as it was: {', '.join(missing)}" if missing else ""
        print(f"{file}: {len(_PLACE.findall(before)) - len(missing)} places filled{left}")


def filled(text: str, folder: Path, images: Path, beside: Path) -> tuple[str, Sequence[str]]:
    """The text, of a file that lies `beside` others, with what is in a folder, and the names of what is not there."""
    missing: list[str] = []

    def fill(place: re.Match[str]) -> str:
        begin, name, end = place[1], place[2], place[3]
        table = _chart(folder / name, images, beside) if name.endswith(".png") else _table(folder, name)
        if table is None:
            missing.append(name)
            return place[0]
        return f"{begin}\n{table}\n{end}"

    return _PLACE.sub(fill, text), missing


def _chart(chart: Path, images: Path, beside: Path) -> str | None:
    """A picture of Markdown, copied to where the file can show it."""
    if not chart.exists():
        return None
    images.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(chart, images / chart.name)
    return f"![{TITLES[chart.stem]}]({os.path.relpath(images / chart.name, beside)})\n"


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
