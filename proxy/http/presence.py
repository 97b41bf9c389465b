"""The client's presence: work that is dropped as soon as nobody waits for it."""

import asyncio
from types import TracebackType
from typing import Self

from starlette.types import Receive

from proxy.errors import ClientGone
from proxy.http.client import Client


class Presence:
    """An async context whose body is cancelled when the client goes away; leaving it then raises ClientGone.

    The request body must have been read before, as `receive` is listened to, unless the `client` itself tells. Works
    like `asyncio.timeout`: a cancellation that came from elsewhere passes through. After `settle()` a departure no
    longer matters, which is to be called before the last byte is sent: servers report the end of a response as a
    departure too.
    """

    def __init__(self, receive: Receive, client: Client | None = None) -> None:
        self._receive = receive
        self._client = client
        self._settled = False
        self._gone = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("Presence: must be entered inside a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._watcher: asyncio.Task[None] | None = None
        self._begin: asyncio.Handle | None = None
        if self._client is None:
            # A body that never waits needs no task, which costs more than all else here.
            self._begin = task.get_loop().call_soon(self._listen)
        elif self._client.gone:
            self._begin = task.get_loop().call_soon(self._leave)
        else:
            self._client.watch(self._leave)
        return self

    def settle(self) -> None:
        """From here on the body runs to its end, whatever the client does."""
        self._settled = True

    def _listen(self) -> None:
        self._watcher = self._task.get_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if not self._settled:
            self._gone = True
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._settled = True
        if self._client is not None:
            self._client.watch(None)
        if self._begin is not None:
            self._begin.cancel()
        if self._watcher is not None:
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
