"""The endpoints: what is done with a request once its route is known."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from proxy.errors import ClientGone, UpstreamError
from proxy.http import answers, headers
from proxy.http.bodies import Upload
from proxy.http.headers import Headers
from proxy.http.presence import Presence
from proxy.upstream import Upstream
from proxy.upstream.relay import End, Relay


async def passthrough(
    upstream: Upstream,
    target: bytes,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    extra: Headers = (),
    on_end: Callable[[End], None] | None = None,
) -> None:
    """Forward a request as it is, body and reply streaming both at once.

    WebSocket upgrades get a 501, and TRACE a 405: its answer is the request as it came, with the upstream's key in it.
    """
    if scope["method"] in ("TRACE", "CONNECT"):
        await answers.not_relayed(scope["method"])(scope, receive, send)
    elif headers.asks_websocket(scope["headers"]):
        await answers.no_websocket()(scope, receive, send)
    elif headers.has_body(scope["headers"]):
        async with Upload(receive, idle_s=upstream.idle_s) as upload:
            await _forward(upstream, target, scope, upload.receive, send, upload, extra, on_end)
    else:
        await _forward(upstream, target, scope, receive, send, b"", extra, on_end)


async def _forward(
    upstream: Upstream,
    target: bytes,
    scope: Scope,
    receive: Receive,
    send: Send,
    body: bytes | Upload,
    extra: Headers,
    on_end: Callable[[End], None] | None,
) -> None:
    report = on_end or (lambda end: None)
    try:
        async with Presence(receive):
            reply = await upstream.send(scope["method"], target, scope["headers"], body)
    except ClientGone:
        if isinstance(body, Upload) and body.refused is not None:
            report(End.CLIENT_GONE)
            raise body.refused from None
        if not (isinstance(body, Upload) and body.stalled):
            report(End.CLIENT_GONE)
            return
        error = UpstreamError("upstream_timeout", f"upstream '{upstream.name}': took no more of the request in time")
    except UpstreamError as raised:
        error = raised
    except asyncio.CancelledError:
        report(End.CANCELLED)
        raise
    else:
        await Relay(reply, extra=extra, on_end=on_end)(scope, receive, send)
        return
    report(End.of(error))
    await answers.failure(error, extra)(scope, receive, send)
