import json

import pytest
from starlette.requests import Request

from proxy.errors import ClientError, UpstreamError
from proxy.http import answers


@pytest.mark.parametrize(
    ("error", "status", "kind", "param"),
    [
        (ClientError(413, "body_too_large", "too large"), 413, "invalid_request_error", None),
        (ClientError(400, "bad", "bad", param="messages"), 400, "invalid_request_error", "messages"),
        (UpstreamError("upstream_unreachable", "down"), 502, "server_error", None),
        (UpstreamError("upstream_broken", "broken"), 502, "server_error", None),
        (UpstreamError("upstream_timeout", "slow"), 504, "server_error", None),
    ],
)
def test_failures_have_openais_shape(error, status, kind, param) -> None:
    response = answers.failure(error, [(b"x-trimtab-action", b"pass")])
    assert response.status_code == status
    expected = {"message": error.message, "type": kind, "param": param, "code": error.code}
    assert json.loads(bytes(response.body)) == {"error": expected}
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-trimtab-action"] == "pass"


@pytest.mark.parametrize(
    ("extensions", "types"),
    [
        ({"websocket.http.response": {}}, ["websocket.http.response.start", "websocket.http.response.body"]),
        ({}, ["websocket.close"]),
    ],
)
async def test_websockets_are_refused_as_the_server_allows(extensions, types) -> None:
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    await answers.refuse_websocket(extensions, send)
    assert [message["type"] for message in sent] == types
    assert sent[0].get("status", 501) == 501


def test_a_failure_of_the_proxy_says_nothing_of_what_was_sent() -> None:
    response = answers.broken(Request({"type": "http"}), ValueError("secret words of a prompt"))

    assert response.status_code == 500
    error = json.loads(bytes(response.body))["error"]
    assert (error["code"], error["type"]) == ("internal_error", "server_error")
    assert "ValueError" in error["message"]
    assert "secret" not in error["message"]
