"""How many requests are worked on at once: those beyond wait their turn, and those that are too many are sent away."""

import asyncio
import math
from collections import deque
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.http.answers import error_response

Report = Callable[[int], None]
"""Told how many requests wait, whenever that changes."""


def _unheard(_: int) -> None:
    return None


class Admission:
    """Lets `limit` requests at a time through to an application, in the order in which they came.

    At most `waiting` more wait, each for up to `wait_s` seconds; others, and those whose time is up, are answered with
    503 `overloaded` and a `Retry-After`. A client that leaves while it waits gives its place up.
    """

    def __init__(
        self,
        limit: int,
        *,
        waiting: int,
        wait_s: float,
        on_wait: Report = _unheard,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit: must be at least 1, got {limit}")
        self._limit = limit
        self._most_waiting = waiting
        self._wait_s = wait_s
        self._on_wait = on_wait
        self._on_refusal = on_refusal
        self._running = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def running(self) -> int:
        """Requests that were let through and are not done."""
        return self._running

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let `app` answer a request when it is its turn, or turn the request away."""
        if self._running < self._limit:
            self._running += 1
        elif len(self._queue) >= self._most_waiting:
            await self._refuse(scope, receive, send)
            return
        else:
            listener = _Listener(receive)
            turn = await self._turn(listener)
            if turn is None:
                return
            if not turn:
                await self._refuse(scope, listener, send)
                return
            receive = listener
        try:
            await app(scope, receive, send)
        finally:
            self._leave()

    async def _turn(self, listener: "_Listener") -> bool | None:
        """True when it is this request's turn, False when its time is up, None when its client has left."""
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self._on_wait(len(self._queue))
        gone = asyncio.create_task(listener.gone())
        try:
            await asyncio.wait({turn, gone}, timeout=self._wait_s, return_when=asyncio.FIRST_COMPLETED)
            if turn.done():
                return True
            return None if gone.done() else False
        except BaseException:
            if turn.done():
                self._leave()
            raise
        finally:  # without awaiting anything, so that a turn which is given up cannot come meanwhile
            gone.cancel()
            if not turn.done():
                self._queue.remove(turn)
            self._on_wait(len(self._queue))

    def _leave(self) -> None:
        """Hand this request's place to the one that has waited longest."""
        if self._queue:
            self._queue.popleft().set_result(None)
        else:
            self._running -= 1

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._on_refusal()
        message = "The proxy is busy with other requests, and as many wait as may; try again later"
        pause = (b"retry-after", str(max(1, math.ceil(self._wait_s))).encode())
        await error_response(503, "overloaded", message, extra=[pause])(scope, receive, send)


class _Listener:
    """A `receive` that may be listened to before anybody reads: what was heard is given again."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._heard: deque[Message] = deque()

    async def __call__(self) -> Message:
        return self._heard.popleft() if self._heard else await self._receive()

    async def gone(self) -> None:
        """Return when the client has left. Reads one piece of a body at the most, and then a whole one's end."""
        while not self._heard or not self._heard[-1].get("more_body", False):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            self._heard.append(message)
        await asyncio.Event().wait()
