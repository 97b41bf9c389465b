"""A policy that somebody wrote by docs/writing-a-policy.md: one file and an entry point, and it is there everywhere."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import httpx2
import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import assistant, body, system, user, words
from tests.proxy.replicas import Replica

ROOT = Path(__file__).parents[1]
POLICY = dedent(
    '''
    """Code goes first: it is in the repository anyhow."""

    from dataclasses import dataclass
    from typing import Annotated, ClassVar

    from policies.greedy import evict_lowest
    from policies.plan import Plan
    from policies.registry import register
    from policies.types import Context, Need, Slot, Window
    from pydantic import Field


    @register
    @dataclass(frozen=True, slots=True, kw_only=True)
    class CodeFirst:
        """Evicts slots with fenced code before others, the oldest first."""

        name: ClassVar[str] = "code_first"
        needs: ClassVar[frozenset[Need]] = frozenset()

        lines: Annotated[int, Field(ge=1, description="fewer lines of code do not count")] = 3

        def plan(self, window: Window, target: int, context: Context) -> Plan:
            """Evict code until the target is met, then what else is old."""

            def code(slot: Slot) -> bool:
                return "```" in slot.text and slot.text.count("\\n") >= self.lines

            def score(slot: Slot) -> float:
                return slot.turn - (len(window.slots) if code(slot) else 0)

            def why(slot: Slot) -> str:
                return "code" if code(slot) else "oldest first"

            return Plan(self.name, evict_lowest(window, target, score, why))
    '''
).lstrip()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What PYTHONPATH has to be for the package to be installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "code_first.py").write_text(POLICY)
    info = folder / "code_first-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: code-first\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trimtab.policies]\ncode_first = code_first:CodeFirst\n")
    return f"{folder}{os.pathsep}{ROOT}"


def run(path: str, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_configuration_may_name_it_and_its_options(path: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("defaults: {policy: {name: code_first, lines: 5}}\n")

    checked = run(path, tmp_path, "proxy", "check", "own.yaml")

    assert "name: code_first" in checked
    assert "lines: 5" in checked


def test_the_bench_compares_it(path: str, tmp_path: Path) -> None:
    measured = run(
        path,
        tmp_path,
        *("bench.quality", "--planted", "1", "--messages", "60", "--facts", "4", "--budgets", "0.5"),
        *("--policies", "code_first,fifo", "--model", "none"),
    )

    rows = [line for line in measured.splitlines() if "code_first" in line or "fifo" in line]
    assert len(rows) >= 2, measured


@pytest.fixture
def served(path: str, tmp_path: Path, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replica]:
    monkeypatch.setenv("PYTHONPATH", path)
    settings = "defaults: {policy: code_first, window: 2000, reserve_output: 0}\nembeddings: {backend: none}\n"
    replica = Replica(tmp_path / "proxy", settings, upstream=upstream.url, command=("--workers", "1"))
    yield replica
    replica.stop()


async def test_the_proxy_cuts_by_it_and_the_dashboard_shows_it(served: Replica) -> None:
    code = f"```python\n{words(60)}\n{words(60, 1)}\n{words(60, 2)}\n```"
    messages = [system(), user("Help me with the harbour's program.")]
    for turn in range(7):
        messages += [
            assistant(code if turn % 2 else f"Plain words: {words(180, turn)}"),
            user(f"{turn}: {words(60, turn)}?"),
        ]
    await served.start()

    async with served.client() as client:
        answer = await client.post(
            "/v1/chat/completions", content=body(messages), headers={"content-type": "application/json"}
        )
        overview = (await client.get("/trimtab/api/overview")).json()
        decision = await _recorded(client, answer.headers["x-trimtab-audit-id"])

    assert answer.headers["x-trimtab-policy"] == "code_first"
    assert "code_first" in overview["policies"], "to be tried on the page's preview"
    assert decision["policy"] == "code_first"
    evicted = [slot for slot in decision["slots"] if slot["action"] == "evict"]
    assert {slot["reason"].split(";")[0] for slot in evicted} >= {"code"}
    assert all("```" in messages[slot["messages"][0]]["content"] for slot in evicted if slot["reason"] == "code")


async def _recorded(client: httpx2.AsyncClient, audit_id: str) -> dict[str, object]:
    async with asyncio.timeout(10):
        while True:
            answer = await client.get(f"/trimtab/api/decisions/{audit_id}")
            if answer.status_code == 200:
                found: dict[str, object] = json.loads(answer.content)
                return found
            await asyncio.sleep(0.02)
