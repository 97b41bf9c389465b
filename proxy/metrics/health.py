"""Whether this worker lives, and whether it wants requests: what load balancers ask."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_STOPS = (signal.SIGTERM, signal.SIGINT)


class Health:
    """`/healthz` says 200 as long as anybody answers; `/readyz` only between the start and a stop.

    Ready means that routes and upstreams are there. The store need not be: requests do without it.
    """

    def __init__(self) -> None:
        self._state = "starting"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Ready until the context ends, or until a signal asks the process to stop, whichever is first.

        The server's own handlers of these signals are called as before.
        """
        self._state = "ready"
        before: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}
        if threading.current_thread() is threading.main_thread():  # others may not handle signals

            def stop(number: int, frame: FrameType | None) -> None:
                self._state = "draining"
                before[signal.Signals(number)](number, frame)

            for number in _STOPS:
                if callable(handler := signal.getsignal(number)):  # a server that handles it; else it ends the process
                    before[number] = handler
                    signal.signal(number, stop)
        try:
            yield
        finally:
            self._state = "draining"
            for number, handler in before.items():
                if signal.getsignal(number) is stop:
                    signal.signal(number, handler)

    async def alive(self, _: Request) -> Response:
        """The answer to `/healthz`."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """The answer to `/readyz`."""
        return JSONResponse({"status": self._state}, 200 if self._state == "ready" else 503)
