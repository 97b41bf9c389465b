"""The client's presence: work that is dropped as soon as nobody waits for it."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

from proxy.errors import ClientGone


class Presence:
    """An async context whose body is cancelled when the client goes away; leaving it then raises ClientGone.

    The request body must have been read before, as `receive` is listened to. Works like `asyncio.timeout`: a
    cancellation that came from elsewhere passes through. After `settle()` a departure no longer matters, which
    is to be called before the last byte is sent: servers report the end of a response as a departure too.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._settled = False
        self._gone = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("Presence: must be entered inside a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._watcher = asyncio.create_task(self._watch())
        return self

    def settle(self) -> None:
        """From here on the body runs to its end, whatever the client does."""
        self._settled = True

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._settled:
            self._gone = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settled = True
        self._watcher.cancel()
        if not self._gone:
            return
        if kind is None:
            # The cancellation was asked for but has not arrived yet: it must not hit whoever awaits next.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as cancelled:
                kind, error = asyncio.CancelledError, cancelled
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ClientGone from error
