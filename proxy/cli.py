"""The command line: serve, demo, trim, count, check, audit, report, state."""

import asyncio
import os
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer

from policies import registry
from policies.errors import PolicyError
from proxy import config as configs
from proxy import wire
from proxy.audit import cli as audit_cli
from proxy.config import check as checking
from proxy.errors import ClientError, ConfigError
from proxy.matching import Router
from proxy.offline import NotChatError, count_body, trim_body
from proxy.route import Route
from proxy.stores.contract import StoreError

NOT_CHAT, UNFIT, UNREACHABLE = 2, 3, 4  # exit codes

app = typer.Typer(
    help="An OpenAI-compatible reverse proxy that keeps conversations inside their model's window.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
state = typer.Typer(help="What is remembered between requests.", no_args_is_help=True)
app.add_typer(state, name="state")
app.add_typer(audit_cli.audit, name="audit")
app.command()(audit_cli.report)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"trimtab {metadata.version('trimtab')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


File = Annotated[str, typer.Argument(metavar="[FILE]", help="A file, or - for standard input.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="The configuration; without it, the defaults.")]


@app.command()
def serve(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Listen here instead of server.host.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Listen here instead of server.port.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes instead of server.workers.")] = None,
) -> None:
    """Run the proxy."""
    from proxy.serving import run  # what it needs takes time to import, and the other commands do without

    run(config, host=host, port=port, workers=workers)


@app.command()
def demo(
    speed: Annotated[float, typer.Option(min=0, help="How many times the usual pace; 0: without pauses.")] = 1.0,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The proxy's port; 0: a free one.")] = 0,
    leave: Annotated[
        bool, typer.Option("--exit", help="End after the last turn, and take the dashboard down.")
    ] = False,
) -> None:
    """Play a long conversation through the proxy, here: no key, no network."""
    from proxy.demo import run  # as for serve

    run(speed=speed, port=port, leave=leave)


@app.command()
def trim(
    file: File = "-",
    config: ConfigFile = None,
    route: Annotated[
        str | None, typer.Option(help="The route's name; by default the one that takes the request.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Trim with this policy instead of the route's.")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="The context window in tokens.")] = None,
    reserve: Annotated[int | None, typer.Option(min=0, help="Tokens kept free for the answer.")] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One request a line, each for itself.")] = False,
    audit: Annotated[Path | None, typer.Option(help="Write audit records here instead of standard error.")] = None,
) -> None:
    """Print a request's body as it would be sent out. Nothing is sent."""
    loaded = configs.load(config)
    router = configs.router(loaded)
    chosen = None if route is None else _by_name(configs.routes(loaded), route)
    other = None if policy is None else registry.create(policy, {})
    exit_code = 0
    records = audit.open("wb") if audit else sys.stderr.buffer
    embeddings = configs.vectors(loaded).local()
    try:
        for number, body in _bodies(file, jsonl=jsonl):
            where = f"line {number}: " if jsonl else ""
            try:
                picked = chosen or _taking(router, body)
                result = trim_body(
                    body,
                    replace(picked, window=window or picked.window),
                    policy=other,
                    reserve=reserve,
                    everything=loaded.audit.slots == "all",
                    content=loaded.audit.content,
                    embeddings=embeddings,
                )
                out, record = result.body, result.record
                records.write(msgspec.json.encode(record) + b"\n")
            except NotChatError as error:
                exit_code, out = NOT_CHAT, body
                sys.stderr.write(f"trimtab: {where}not a chat request: {error}\n")
            except ClientError as error:
                exit_code, out = exit_code or UNFIT, body
                sys.stderr.write(f"trimtab: {where}{error.message}\n")
            if jsonl or not exit_code:
                sys.stdout.buffer.write(out + b"\n" if jsonl else out)
    finally:
        if audit:
            records.close()
        embeddings.close()
    sys.stdout.buffer.flush()
    raise typer.Exit(exit_code)


@app.command()
def count(
    file: File = "-",
    model: Annotated[str | None, typer.Option(help="Count for this model instead of the body's.")] = None,
) -> None:
    """Count a request's tokens: message by message, tool schemas, images."""
    for _, body in _bodies(file, jsonl=False):
        try:
            counted = count_body(body, model)
        except NotChatError as error:
            sys.stderr.write(f"trimtab: not a chat request: {error}\n")
            raise typer.Exit(NOT_CHAT) from None
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(counted), indent=2) + b"\n")


@app.command()
def check(file: Annotated[Path, typer.Argument(help="A configuration file.")]) -> None:
    """Validate a configuration and print it with every default filled in."""
    checked = checking.check(file, os.environ)
    for warning in checked.warnings:
        sys.stderr.write(f"trimtab: warning: {warning}\n")
    sys.stdout.write(checked.effective)


@state.command()
def purge(config: ConfigFile = None) -> None:
    """Forget every stored decision: conversations are decided about anew.

    Workers that run go on with what they hold in memory of their latest conversations until they are restarted.
    """
    from proxy.app import STATE_KEY  # kept: workers that run would disagree with those that start
    from proxy.conversations import purge as purging

    try:
        done = asyncio.run(purging.purge(configs.load(config).state, keep=[STATE_KEY]))
    except StoreError as error:
        sys.stderr.write(f"trimtab: nothing was forgotten, or not all: {error}\n")
        raise typer.Exit(UNREACHABLE) from None
    if done.why is not None:
        sys.stdout.write(f"{done.store}: nothing to purge, {done.why}\n")
    else:
        sys.stdout.write(f"{done.store}: forgot {done.entries} {'entry' if done.entries == 1 else 'entries'}\n")


def _by_name(routes: tuple[Route, ...], name: str) -> Route:
    for route in routes:
        if route.name == name:
            return route
    raise ConfigError(f"--route: no route is called {name!r} (routes: {', '.join(r.name for r in routes)})")


def _taking(router: Router, body: bytes) -> Route:
    model = wire.peek_model(body)
    found = router.find("/v1/chat/completions", model, {}, None)
    if found is None:
        raise ConfigError(f"no route takes model {model!r}: name one with --route ({', '.join(router.names)})")
    return found.route


def _bodies(file: str, *, jsonl: bool) -> "list[tuple[int, bytes]]":
    try:
        source: BinaryIO = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    with source:
        data = source.read()
    if not jsonl:
        return [(1, data)]
    return [(n, line) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]


def main() -> None:
    """Run the command line; every mistake of its user is told in a line or a few, without a traceback."""
    try:
        app(standalone_mode=True)
    except ConfigError as error:
        sys.stderr.write("".join(f"trimtab: {problem}\n" for problem in error.problems))
        sys.exit(2)
    except PolicyError as error:
        sys.stderr.write(f"trimtab: --{error}\n")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
