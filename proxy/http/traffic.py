"""The requests of a worker whose answers have not ended, and how many of them are event streams."""

import asyncio
from collections.abc import Awaitable
from functools import cache

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.http import answers, headers
from proxy.metrics import Metrics, status_class


class Traffic:
    """Counts what is open, for gauges and for whoever has to wait until nothing is."""

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.gauge("trimtab_requests_open", "Requests whose answer has not ended.", mode="livesum")
        self._streams = metrics.gauge("trimtab_streams_open", "Event streams that have not ended.", mode="livesum")
        self._responses = cache(metrics.responses.labels)
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let `app` answer a request, counted while it does; 503 if it is cancelled first, 500 if it fails."""
        started = streaming = False

        def watched(message: Message) -> Awaitable[None]:
            nonlocal started, streaming
            if message["type"] == "http.response.start":
                started = True
                self._responses(status_class(message["status"])).inc()
                if _is_stream(message):
                    streaming = True
                    self._streams.inc()
            return send(message)

        self._open += 1
        self._none.clear()
        self._requests.inc()
        try:
            await app(scope, receive, watched)
        except asyncio.CancelledError:  # the server stops, and will wait no longer
            if started or scope["type"] != "http":
                raise
            await answers.stopping()(scope, receive, watched)
        except Exception as error:  # whoever serves the application logs it
            if not started and scope["type"] == "http":
                await answers.broken(Request(scope), error)(scope, receive, watched)
            raise
        finally:
            self._requests.dec()
            if streaming:
                self._streams.dec()
            self._open -= 1
            if not self._open:
                self._none.set()

    async def ended(self, timeout_s: float) -> bool:
        """Wait until no request is open; False where some still were after `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._none.wait()
        except TimeoutError:
            return False
        return True


def _is_stream(message: Message) -> bool:
    kind = headers.first(message["headers"], b"content-type") or b""
    return kind.lower().startswith(b"text/event-stream")
