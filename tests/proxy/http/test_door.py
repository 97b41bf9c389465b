"""Which paths are found on which port."""

import socket
from pathlib import Path

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy.http.door import Door
from proxy.http.keys import Keyring
from tests.fakes.upstream import FakeUpstream
from tests.proxy.replicas import Replica

ADMIN = 9090


async def answered(path: str, port: int | None, admin_port: int | None) -> int:
    """The status that a path gets on a port; 200 where it was let through."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    server = None if port is None else ("127.0.0.1", port)
    scope = {"type": "http", "path": path, "headers": [], "server": server}
    await Door(app, keyring=Keyring(), admin_port=admin_port)(scope, receive, send)
    return int(sent[0]["status"])


OWN = ["/metrics", "/trimtab", "/trimtab/", "/trimtab/preview"]
OTHERS = ["/v1/chat/completions", "/trimtabs", "/metrics/", "/v1/metrics", "/"]
HEALTH = ["/healthz", "/readyz"]


@pytest.mark.parametrize("path", OWN)
async def test_own_paths_move_to_their_port(path: str) -> None:
    assert [await answered(path, port, ADMIN) for port in (8080, ADMIN, None)] == [404, 200, 404]


@pytest.mark.parametrize("path", OTHERS)
async def test_nothing_else_is_on_that_port(path: str) -> None:
    assert [await answered(path, port, ADMIN) for port in (8080, ADMIN, None)] == [200, 404, 200]


@pytest.mark.parametrize("path", [*OWN, *OTHERS, *HEALTH])
async def test_without_such_a_port_everything_is_on_one(path: str) -> None:
    assert await answered(path, 8080, None) == 200


@pytest.mark.parametrize("path", HEALTH)
async def test_health_is_told_everywhere(path: str) -> None:
    assert [await answered(path, port, ADMIN) for port in (8080, ADMIN)] == [200, 200]


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_server_listens_on_both_ports(tmp_path: Path, upstream: FakeUpstream, workers: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = f"server: {{admin_port: {port}}}\nstate: 'sqlite:///{tmp_path}/state.db'"
    replica = Replica(tmp_path / "replica", settings, upstream=upstream.url, command=("--workers", workers))
    await replica.start()
    try:
        async with replica.client() as main, httpx2.AsyncClient(trust_env=False) as client:
            own = f"http://127.0.0.1:{port}"
            found = [(await main.get(path)).status_code for path in ("/metrics", "/v1/models", "/healthz")]
            apart = [(await client.get(own + path)).status_code for path in ("/metrics", "/v1/models", "/healthz")]
    finally:
        replica.stop()

    assert (found, apart) == ([404, 200, 200], [200, 404, 200])
    assert len(upstream.exchanges) == 1
