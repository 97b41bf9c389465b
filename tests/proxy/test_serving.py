"""`trimtab serve` as a process of its own: several workers as one, and an end that cuts nobody off."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy import serving
from proxy.errors import ConfigError
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, dialogue, user
from tests.proxy.proxied import post
from tests.proxy.replicas import ROOT, Replica
from tests.proxy.test_metrics import Figures, figures

Serve = Callable[..., Replica]


@pytest.fixture
async def replica(tmp_path: Path, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Makes a process: `replica(workers=2, drain_s=1)`; its temporary files are in `tmp_path / "temporary"`."""
    made: list[Replica] = []
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))

    def make(*, workers: int, drain_s: float = 20) -> Replica:
        settings = f"server: {{drain_s: {drain_s}}}\nstate: 'sqlite:///{tmp_path}/state.db'"
        made.append(Replica(tmp_path / "replica", settings, upstream=upstream.url, command=("--workers", str(workers))))
        return made[-1]

    yield make
    for each in made:
        each.stop()


class Slow:
    """An upstream whose stream goes on until it is told to end."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b'data: {"choices": []}\n\n')
        await self.end.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")


async def never(exchange: Exchange) -> None:
    await asyncio.Event().wait()


def asked_to_stream(client: httpx2.AsyncClient) -> Any:
    return client.stream("POST", "/v1/chat/completions", content=body([user("hello")], stream=True))


def stop(replica: Replica) -> None:
    assert replica.process is not None
    replica.process.send_signal(signal.SIGTERM)


async def refused(client: httpx2.AsyncClient) -> None:
    """Wait until new connections are refused; until then they may be answered, and must not be left waiting."""
    async with asyncio.timeout(5):
        while True:
            try:
                await client.get("/readyz", timeout=2)
            except httpx2.ConnectError:
                return
            except (httpx2.ReadError, httpx2.RemoteProtocolError):  # accepted just before the end
                continue


async def exited(replica: Replica, within_s: float) -> int:
    """The process's exit code."""
    assert replica.process is not None
    async with asyncio.timeout(within_s):
        while (code := replica.process.poll()) is None:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(0.02)
    return code


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def records(replica: Replica) -> list[dict[str, Any]]:
    return [json.loads(line) for line in replica.audit.read_text().splitlines()]


def log(replica: Replica) -> str:
    return replica.audit.with_name("log").read_text()


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_open_stream_is_finished_while_new_connections_are_refused(
    replica: Serve, upstream: FakeUpstream, workers: int
) -> None:
    upstream.handler = slow = Slow()
    served = replica(workers=workers)
    await served.start()

    async with served.client() as client, asked_to_stream(client) as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        stop(served)
        await refused(client)
        slow.end.set()
        rest = b"".join([piece async for piece in pieces])
    code = await exited(served, within_s=8)

    assert rest == b"data: [DONE]\n\n"
    assert code in (0, -signal.SIGTERM)
    assert [record["stream_end"] for record in records(served)] == ["done"]
    assert "Traceback" not in log(served)


async def test_a_stream_that_does_not_end_in_time_is_cut_and_written_down(
    replica: Serve, upstream: FakeUpstream
) -> None:
    upstream.handler = Slow()
    served = replica(workers=1, drain_s=0.5)
    await served.start()

    async with served.client() as client, asked_to_stream(client) as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        upstream.handler = never
        unanswered = asyncio.create_task(post(client, body([user("hello")])))
        await upstream.arrival(2)
        start = time.monotonic()
        stop(served)
        with pytest.raises(httpx2.RemoteProtocolError):
            [piece async for piece in pieces]
        refusal = await unanswered
        await exited(served, within_s=8)

    assert time.monotonic() - start > 0.5
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "server_stopping")
    assert len(records(served)) == 2
    assert "cancelled" in {record["stream_end"] for record in records(served)}
    assert "Traceback" not in log(served)


async def test_an_upstream_that_breaks_off_is_no_fault_of_the_server(replica: Serve, upstream: FakeUpstream) -> None:
    async def breaking(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b"data: {}\n\n")
        exchange.reset()

    upstream.handler = breaking
    served = replica(workers=1)
    await served.start()

    async with served.client() as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(client, body([user("hello")], stream=True))
    stop(served)
    await exited(served, within_s=8)

    assert [record["stream_end"] for record in records(served)] == ["upstream_error"]
    assert [line for line in log(served).splitlines() if not line.startswith("{")] == []


async def test_several_workers_have_one_audit_file_and_one_page_of_metrics(replica: Serve, tmp_path: Path) -> None:
    served = replica(workers=2)
    await served.start()

    async with served.client() as client:
        answers = await asyncio.gather(*(post(client, body(dialogue(3), seed=n)) for n in range(40)))
        assert {answer.status_code for answer in answers} == {200}
        await counted(client, "trimtab_audit_records_total", 40, result="written")
        await counted(client, "trimtab_requests_total", 40, route="default", action="pass", status="2xx")
        seen = await counted(client, "trimtab_requests_open", 0)
        again = await figures(client)
    folders = list((tmp_path / "temporary").glob("trimtab-metrics-*"))
    stop(served)
    await exited(served, within_s=8)

    found = records(served)
    assert {record["audit_id"] for record in found} == {answer.headers["x-trimtab-audit-id"] for answer in answers}
    assert len(found) == 40
    for page in (seen, again):
        assert page("trimtab_requests_total", route="default", action="pass", status="2xx") == 40
        assert page("trimtab_requests_open") == 0
        assert len(page.named("process_resident_memory_bytes")) == 2
        assert len(page.named("trimtab_build_info")) == 1
    assert len(folders) == 1
    assert not folders[0].exists()


async def counted(client: httpx2.AsyncClient, name: str, value: float, **labels: str) -> Figures:
    """The page of metrics, once a figure has a value: other workers bring theirs up to date every few seconds."""
    async with asyncio.timeout(15):
        while (seen := await figures(client))(name, **labels) != value:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
    return seen


async def test_what_a_killed_worker_counted_stays_and_what_it_had_open_goes(
    replica: Serve, upstream: FakeUpstream
) -> None:
    served = replica(workers=2)
    await served.start()

    async with served.client() as client:
        for _ in range(4):
            await post(client, body([user("hello")]))
        upstream.handler = Slow()
        async with asked_to_stream(client) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
            await counted(client, "trimtab_requests_total", 4, route="default", action="pass", status="2xx")
            before = await counted(client, "trimtab_streams_open", 1)
            killed = served.workers()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(httpx2.TransportError):
                [piece async for piece in pieces]
        after = await counted(client, "trimtab_streams_open", 0)  # once both are missed

    assert before("trimtab_streams_open") == 1
    assert after("trimtab_streams_open") == 0
    assert after("trimtab_requests_total", route="default", action="pass", status="2xx") == 4
    pids = {int(labels["pid"]) for labels in after.named("process_resident_memory_bytes")}
    assert pids
    assert pids.isdisjoint(killed)


async def test_workers_do_not_outlive_their_parent(replica: Serve) -> None:
    served = replica(workers=2)
    await served.start()
    workers = served.workers()

    served.kill()

    async with asyncio.timeout(10):
        while any(map(runs, workers)):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
    async with served.client() as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("/healthz")


# -- what stops the start


@contextmanager
def said(tmp_path: Path, *options: str) -> Iterator[Iterator[dict[str, Any]]]:
    """What a server of this machine says on stderr, line by line, until it ends."""
    path = config(tmp_path, f"state: 'sqlite:///{tmp_path}/state.db'\naudit: {{path: '{tmp_path}/audit.jsonl'}}")
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(path), *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            yield (json.loads(line) for line in process.stderr if line.startswith(b"{"))
        finally:
            process.terminate()


def test_who_is_told_that_it_listens_can_connect_even_to_a_port_that_was_free(tmp_path: Path) -> None:
    with said(tmp_path, "--port", "0") as lines:
        told = next(line for line in lines if line["event"] == "listening")

        assert httpx2.get(f"{told['address']}/healthz", trust_env=False).status_code == 200


def test_several_workers_on_a_free_port_name_it(tmp_path: Path) -> None:
    with said(tmp_path, "--port", "0", "--workers", "2") as lines:
        told = next(line for line in lines if line["event"] == "listening")

    assert not told["address"].endswith(":0")


@pytest.mark.parametrize("setting", ["--port", "server.port", "server.admin_port"])
def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path, setting: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = f"server: {{{setting.removeprefix('server.')}: {port}}}" if setting != "--port" else ""
        given = {"--port": port, "server.port": None, "server.admin_port": 0}[setting]
        with pytest.raises(ConfigError) as error:
            serving.run(config(tmp_path, text), host=None, port=given, workers=None)

    (problem,) = error.value.problems
    assert problem.startswith(
        f"{setting}: cannot listen on port {port} of 127.0.0.1: Address already in use. Name another"
    )


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trimtab.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "workers", "setting"),
    [
        ("", 3, "--workers is 3"),
        ("server: {workers: 3}", None, "server.workers is 3"),
        ("state: MEMORY://", 2, "--workers is 2"),
    ],
    ids=["command line", "file", "in capitals"],
)
def test_a_state_of_one_process_is_refused_to_several(
    tmp_path: Path, text: str, workers: int | None, setting: str
) -> None:
    with pytest.raises(ConfigError) as error:
        serving.run(config(tmp_path, text), host=None, port=None, workers=workers)

    wanted = f"state: must be sqlite:///file or redis://host:port/0, since {setting} and memory:// serves one"
    assert error.value.problems == (wanted,)


def test_an_audit_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = config(tmp_path, f"audit: {{path: ['-', '{tmp_path}/missing/audit.jsonl']}}")

    with pytest.raises(ConfigError, match=r"audit.path: cannot be written, No such file or directory: .*missing/audit"):
        serving.run(path, host=None, port=None, workers=None)


def test_workers_without_a_temporary_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config(tmp_path, f"state: 'sqlite:///{tmp_path}/state.db'")

    def none(**_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(serving, "TemporaryDirectory", none)
    with pytest.raises(ConfigError, match="Make TMPDIR name a folder that can be written, or use --workers 1"):
        serving.run(path, host=None, port=0, workers=2)
