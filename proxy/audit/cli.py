"""`trimtab audit` and `trimtab report`: recent decisions listed, followed, explained and summed."""

import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from proxy import config as configs
from proxy.audit import store as audit_store
from proxy.audit import tables as audit_tables
from proxy.audit import words as audit_words
from proxy.audit.figures import GROUPS, Figures
from proxy.audit.query import MOST, Decisions, Filter
from proxy.errors import ConfigError

FOLLOW_S = 0.5
NOT_FOUND, UNREADABLE = 2, 4  # exit codes

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

audit = typer.Typer(help="Recent decisions: a list of them, or one explained.", invoke_without_command=True)

ConfigFile = Annotated[Path | None, typer.Option("--config", help="The configuration that names the audit store.")]
StoreFile = Annotated[Path | None, typer.Option("--store", help="The audit store's file itself.")]
RouteName = Annotated[str | None, typer.Option(help="Only of this route.")]
Model = Annotated[str | None, typer.Option(help="Only for this model.")]
PolicyName = Annotated[str | None, typer.Option(help="Only by this policy.")]
Since = Annotated[str | None, typer.Option(help="Only of the last 30m, 12h, 7d …")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


@audit.callback()
def listed(
    context: typer.Context,
    config: ConfigFile = None,
    store: StoreFile = None,
    route: RouteName = None,
    model: Model = None,
    policy: PolicyName = None,
    conversation: Annotated[str | None, typer.Option(help="Only of this conversation.")] = None,
    action: Annotated[str | None, typer.Option(help="Only with this action: pass, trimmed, held, unfit …")] = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="At most so many.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with those that come.")] = False,
    as_json: AsJson = False,
) -> None:
    """List recent decisions, the newest last."""
    context.obj = (config, store)
    if context.invoked_subcommand is not None:
        return
    which = Filter(
        route=route,
        model=model,
        policy=policy,
        conversation=conversation,
        action=action,
        since=_since(since),
    )
    if not as_json:
        print_line(audit_tables.head())
    with _reading(config, store) as decisions:
        last = decisions.last()
        for row in reversed(decisions.newest(which, limit=limit)):
            print_row(row, as_json=as_json)
        while follow:
            try:
                time.sleep(FOLLOW_S)
                for row in decisions.after(last, which):
                    print_row(row, as_json=as_json)
                    last = row["id"]
            except KeyboardInterrupt:
                return


@audit.command()
def show(
    context: typer.Context,
    audit_id: Annotated[str, typer.Argument(metavar="ID", help="An audit id, or how one begins.")],
    config: ConfigFile = None,
    store: StoreFile = None,
    as_json: AsJson = False,
) -> None:
    """Explain one decision: the budget, and what became of each slot and why."""
    above_config, above_store = context.obj or (None, None)
    with _reading(config or above_config, store or above_store) as decisions:
        found = decisions.records(audit_id)
        before = decisions.history(found[0]) if len(found) == 1 else []
    if len(found) != 1:
        why = "several begin so; give more of it" if found else "not there; it may be older than what is kept"
        sys.stderr.write(f"trimtab: {audit_id!r}: {why}\n")
        raise typer.Exit(NOT_FOUND)
    if as_json:
        print_line(msgspec.json.format(msgspec.json.encode(found[0]), indent=2).decode())
    else:
        console().print(audit_words.explain(found[0], before))


def report(
    config: ConfigFile = None,
    store: StoreFile = None,
    by: Annotated[str | None, typer.Option(help=f"Apart by {', '.join(GROUPS)}.")] = None,
    route: RouteName = None,
    model: Model = None,
    policy: PolicyName = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Sum a period: requests, tokens saved, what they cost in time and cache, overflow errors avoided."""
    if by is not None and by not in GROUPS:
        raise ConfigError(f"--by: must be one of {', '.join(GROUPS)}, got {by!r}")
    which = Filter(route=route, model=model, policy=policy, since=_since(since))
    with _reading(config, store) as decisions:
        figures = Figures()
        figures.refresh(decisions)
    totals = figures.totals(which, by=by)
    if as_json:
        encoded = msgspec.json.encode([asdict(each) for each in totals])
        print_line(msgspec.json.format(encoded, indent=2).decode())
    elif totals:
        console().print(audit_tables.report(totals, by=by))
    else:
        print_line("no decisions in this period")


def print_row(row: dict[str, object], *, as_json: bool) -> None:
    """Write a row, and let whoever reads have it at once."""
    print_line(msgspec.json.encode(row).decode() if as_json else audit_tables.line(row))


def print_line(text: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def console() -> Console:
    """Where tables go; what is piped is not cut to a terminal's width."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)


@contextmanager
def _reading(config: Path | None, store: Path | None) -> Iterator[Decisions]:
    """What is in the audit store that is meant.

    Raises:
        ConfigError: there is none that another process could read.
    """
    file = store or _configured(config)
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; the proxy makes it when it starts with audit.store set to it")
    try:
        with audit_store.reading(f"{audit_store.address(file)}?mode=rw") as decisions:
            yield decisions
    except sqlite3.Error as error:
        sys.stderr.write(f"trimtab: {file}: cannot be read as an audit store: {error}\n")
        raise typer.Exit(UNREADABLE) from None


def _configured(config: Path | None) -> Path:
    loaded = configs.load(config)
    if (file := configs.audit_file(loaded)) is None:
        held = "keeps none" if loaded.audit.store is None else "keeps them in the memory of the proxy"
        raise ConfigError(
            f"audit.store: {loaded.audit.store or 'null'} {held}; set it to a file such as sqlite:///audit.db, and "
            "name the configuration with --config, or the file with --store"
        )
    return file


def _since(span: str | None) -> float | None:
    if span is None:
        return None
    if not (found := _SPAN.fullmatch(span.strip())):
        raise ConfigError(f"--since: must be a number with s, m, h or d, such as 30m or 7d, got {span!r}")
    return time.time() - float(found[1]) * _SECONDS[found[2]]
