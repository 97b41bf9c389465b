"""A proxy in front of a scripted upstream, for all clients of a file; and what was run, for the table."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from tests.clients.driving import SETTINGS, Bench
from tests.clients.matrix import RAN
from tests.clients.scripted import scripted
from tests.proxy.replicas import Replica


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("clients")
    with scripted() as upstream:
        proxy = Replica(folder / "proxy", SETTINGS, upstream=upstream.url, command=("--workers", "1"))
        try:
            asyncio.run(proxy.start())
            yield Bench(upstream, proxy, folder)
        finally:
            proxy.stop()


@pytest.fixture(scope="module")
def passed() -> Iterator[Callable[[str, str], None]]:
    """Notes what has passed; the table is made of it."""
    ran: dict[str, list[str]] = {}
    yield lambda client, scenario: ran.setdefault(client, []).append(scenario)
    if ran:
        RAN.parent.mkdir(exist_ok=True)
        before: dict[str, list[str]] = json.loads(RAN.read_text()) if RAN.exists() else {}
        for client, scenarios in ran.items():
            before[client] = sorted({*before.get(client, ()), *scenarios})
        RAN.write_text(json.dumps(before, indent=1))
