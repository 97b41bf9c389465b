"""`trimtab demo`: a long conversation played through the proxy in the terminal, without a key and without a network."""

import asyncio
import logging

import httpx
import structlog
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from proxy.demo import screen, stage, talk, upstream
from proxy.demo.playing import EVICT, TARGET, Player, Tally

_TIMEOUT_S = 60.0


def run(*, speed: float, port: int, leave: bool) -> None:
    """Play it, then keep the dashboard up until Ctrl-C, or leave at once.

    `speed` multiplies the pace, and 0 makes no pauses; `port` is the proxy's, 0 a free one.

    Raises:
        ConfigError: the port cannot be had.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    play(Console(highlight=False), speed=speed, port=port, leave=leave)


def play(console: Console, *, speed: float, leave: bool, port: int = 0) -> None:
    """Play it on a console; Ctrl-C ends it, cleanly, at any time."""
    try:
        asyncio.run(_run(console, speed, port, leave))
    except KeyboardInterrupt:
        console.print("\n[dim]ended[/dim]")


async def _run(console: Console, speed: float, port: int, leave: bool) -> None:
    told = talk.load()
    model = upstream.Model(told, speed=speed)
    async with (
        stage.opened(model.app(), port=port) as where,
        httpx.AsyncClient(base_url=where.url, trust_env=False, timeout=_TIMEOUT_S) as client,
    ):
        _introduce(console, where)
        player = Player(told, where, client, console, speed)
        await player.play()
        _conclude(console, where, player.tally, leave)
        if not leave:
            await asyncio.Event().wait()


def _introduce(console: Console, where: stage.Stage) -> None:
    budget = stage.WINDOW - stage.RESERVE
    console.print(Rule("trimtab", align="left"))
    console.print(
        f"An application talks to a model through {where.url}/v1, and sends the whole conversation every time. "
        f"The model's window takes {stage.WINDOW:,} tokens; {stage.RESERVE} are kept free for the answer, which "
        f"leaves {budget:,} for the prompt."
    )
    console.print(Text.assemble("Dashboard: ", (where.dashboard, "bold underline"), "   Ctrl-C ends."))
    console.print(screen.legend(EVICT, TARGET))
    console.print()


def _conclude(console: Console, where: stage.Stage, tally: Tally, leave: bool) -> None:
    console.print(Rule(align="left"))
    console.print(
        f"{tally.turns} turns, {tally.cuts} cuts. The application sent {tally.before:,} tokens that were counted, "
        f"the model got {tally.after:,}."
    )
    if not leave:
        console.print(
            Text.assemble("The dashboard stays up until Ctrl-C: ", (where.dashboard, "bold underline")), soft_wrap=True
        )
