"""Which paths are found on which port."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy.http.door import Door
from proxy.http.keys import Keyring

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
