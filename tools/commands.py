"""The command line as a page: every command with its arguments and options, as the program itself has them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from proxy.cli import app

_HEAD = "| | is | default | |\n| --- | --- | --- | --- |\n"
_KINDS = {Path: "file", str: "text", int: "whole number", float: "number", bool: ""}


def page() -> str:
    """The page, as Markdown."""
    return "".join(_commands(typer.main.get_command(app), "trimtab"))


def _commands(command: Any, path: str) -> Iterator[str]:
    # Typer has a copy of click of its own, so its classes are told apart by what they have.
    depth = path.count(" ")
    if depth:
        yield f"\n{'#' * (depth + 1)} {path}\n\n{_plain(command.help or '')}\n"
        rows = [_row(each) for each in command.params if not each.hidden]
        if rows:
            yield f"\n{_HEAD}{''.join(rows)}"
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{path} {name}")


def _row(parameter: Any) -> str:
    names = (
        [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else [parameter.metavar]
    )
    default = parameter.default
    shown = "" if default in (None, False) or callable(default) else f"`{default}`"
    kind = _KINDS[parameter.type_descriptor.annotation]
    return f"| {', '.join(f'`{name}`' for name in names)} | {kind} | {shown} | {_plain(parameter.help or '')} |\n"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
