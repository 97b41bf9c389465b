"""The talk played through the proxy by a client that knows nothing of it, and what can be seen of each turn."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from proxy.demo import screen
from proxy.demo.stage import Stage
from proxy.demo.talk import Talk, Turn
from proxy.demo.upstream import MODEL

EVICT, TARGET = 0.85, 0.70  # the defaults, which the bars are marked with
_PAUSE_S = 0.9
_RECORD_S = 30.0  # a record is written when its turn has ended
_SHOWN = 2  # lines of a long answer


@dataclass
class Tally:
    """What the whole talk came to."""

    turns: int = 0
    cuts: int = 0
    before: int = 0
    after: int = 0

    def add(self, record: screen.Record) -> None:
        """One more turn."""
        self.turns += 1
        self.cuts += bool(record["slots_evicted"])
        self.before += record["tokens_before"] or 0
        self.after += record["tokens_after"] or 0


@dataclass
class Player:
    """Plays a talk, turn by turn. `speed` multiplies the pace; 0 makes no pauses."""

    talk: Talk
    stage: Stage
    client: httpx.AsyncClient
    console: Console
    speed: float
    messages: list[dict[str, str]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    async def play(self) -> None:
        """Every turn of the talk."""
        self.messages = [{"role": "system", "content": self.talk.system}]
        for number, turn in enumerate(self.talk.turns, 1):
            await self._turn(number, turn)
            if self.speed:
                await asyncio.sleep(_PAUSE_S / self.speed)

    async def _turn(self, number: int, turn: Turn) -> None:
        self.messages.append({"role": "user", "content": turn.user})
        self.console.print(screen.said(f"{number:>2} you", "bold cyan", turn.user))
        self.console.print(Text("   model".ljust(screen.INDENT), "bold"), end="")
        request = {"model": MODEL, "messages": self.messages, "stream": True}
        async with self.client.stream("POST", "/v1/chat/completions", json=request) as response:
            response.raise_for_status()
            audit_id = response.headers["x-trimtab-audit-id"]
            answer = await self._shown(response, whole=turn.answer is None)
        record = await self._record(audit_id)
        if record["slots_evicted"]:
            self.console.print(screen.cut(record, self.messages))
        else:
            self.console.print(*screen.brought_back(record), sep="\n", end="")
        self.console.print(screen.bar(record, self.console.width, evict=EVICT, target=TARGET))
        self.console.print()
        self.messages.append({"role": "assistant", "content": answer})
        self.tally.add(record)

    async def _shown(self, response: httpx.Response, *, whole: bool) -> str:
        """Print an answer as it comes, a long one's beginning; gives all of it."""
        typing = screen.Typing(self.console, "bold" if whole else "dim", None if whole else _SHOWN)
        said = ""
        async for piece in _pieces(response):
            said += piece
            typing.take(piece)
        self.console.print()
        return said

    async def _record(self, audit_id: str) -> dict[str, Any]:
        """The audit record of a request, as the dashboard gets it."""
        async with asyncio.timeout(_RECORD_S):
            while True:
                answer = await self.client.get(f"/trimtab/api/decisions/{audit_id}")
                if answer.status_code == httpx.codes.OK:
                    record: dict[str, Any] = answer.json()
                    return record
                await asyncio.sleep(0.02)


async def _pieces(response: httpx.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            delta = json.loads(line[6:])["choices"][0]["delta"]
            if delta.get("content"):
                yield delta["content"]
