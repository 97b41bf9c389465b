"""Every request gets an answer, also from what failed or was cut off before its own began."""

import asyncio
import json
from contextlib import nullcontext

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.http.traffic import Traffic
from proxy.metrics import Metrics

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("secret words of a prompt")


async def cut_off(scope: Scope, receive: Receive, send: Send) -> None:
    raise asyncio.CancelledError


async def failing_late(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ValueError("secret words of a prompt")


@pytest.mark.parametrize(
    ("app", "raised", "statuses", "code"),
    [
        pytest.param(failing, ValueError, [500], "internal_error", id="failing"),
        pytest.param(cut_off, None, [503], "server_stopping", id="cut off"),
        pytest.param(failing_late, ValueError, [200], None, id="failing in its answer"),
    ],
)
async def test_one_answer_goes_out(
    app: ASGIApp, raised: type[Exception] | None, statuses: list[int], code: str | None
) -> None:
    traffic, sent = Traffic(Metrics(routes=[], policies=[])), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    with nullcontext() if raised is None else pytest.raises(raised, match="secret"):
        await traffic.serve(app, SCOPE, receive, send)

    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == statuses
    if code is not None:
        body = b"".join(message.get("body", b"") for message in sent)
        assert json.loads(body)["error"]["code"] == code
        assert b"secret" not in body
    assert await traffic.ended(0)
