"""The whole application in front of a fake upstream, for tests through the front door."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from proxy import config as configs
from proxy.app import create_app
from tests.fakes.upstream import FakeUpstream

Start = Callable[..., Awaitable[httpx2.AsyncClient]]


@dataclass(frozen=True)
class Records:
    """The audit file of a test."""

    path: Path

    async def get(self, count: int = 1) -> list[dict[str, Any]]:
        """The records, as soon as there are `count`, in the order in which turns ended."""
        async with asyncio.timeout(5):
            while len(lines := self._whole()) < count:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.01)
        return [json.loads(line) for line in lines]

    def _whole(self) -> list[str]:
        """The lines that have been written to their end."""
        text = self.path.read_text() if self.path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()


async def started(
    serve: Callable[..., Awaitable[str]], upstream: FakeUpstream, records: Records, settings: str
) -> httpx2.AsyncClient:
    """A client of a proxy that was started with these settings; upstreams and audit are filled in where they lack."""
    audit = "" if "\naudit:" in f"\n{settings}" else f"audit: {{path: '{records.path}'}}\n"
    fake = "" if "\nupstreams:" in f"\n{settings}" else f"upstreams: {{fake: {{base_url: '{upstream.url}/v1'}}}}\n"
    config = configs.loads(f"{fake}{audit}{settings}")
    url = await serve(create_app(config, {}), http="proxy.http.heads:BoundedHeads", ws="none")
    return httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20)


async def post(client: httpx2.AsyncClient, content: bytes, **headers: str) -> httpx2.Response:
    """A chat request."""
    return await client.post(
        "/v1/chat/completions", content=content, headers={"content-type": "application/json", **headers}
    )
