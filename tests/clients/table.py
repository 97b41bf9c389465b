"""The table of clients in the README, written from what the last run passed: `python -m tests.clients.table`."""

import json
import re
import sys
from pathlib import Path

from tests.clients.matrix import RAN, ROOT, SCENARIOS

README = ROOT / "README.md"
BEGIN, END = "<!-- clients -->", "<!-- /clients -->"


def table(ran: dict[str, list[str]]) -> str:
    """Rows of client, version and what was run, as Markdown."""
    lines = ["| client | version | run |", "| --- | --- | --- |"]
    for client in sorted(ran, key=str.lower):
        title, _, version = client.rpartition(" ")
        run = ", ".join(words for scenario, words in SCENARIOS.items() if scenario in ran[client])
        lines.append(f"| {title} | {version} | {run} |")
    return "\n".join(lines)


def put(text: str, made: str) -> str:
    """The text with the table between its marks; as it was where it has none."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{made}\n{END}", text, flags=re.DOTALL)


def main(file: Path = README) -> None:
    """Print the table, and put it into the README."""
    made = table(json.loads(RAN.read_text()))
    sys.stdout.write(f"{made}\n")
    file.write_text(put(file.read_text("utf-8"), made), "utf-8")


if __name__ == "__main__":
    main()
