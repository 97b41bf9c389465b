"""How long a client may take to send what it began."""

import asyncio
import time
from collections.abc import Callable

from starlette.types import Message, Receive

from proxy.errors import ClientError
from proxy.http.client import Client

SLOWEST = 16 * 1024  # bytes a second that a body may take more time at


class Patience:
    """A `receive` that waits at most `timeout_s` seconds for each piece of a body.

    All pieces together may take as long, and a second more for each 16 KiB that have come: a large upload has its
    time, and a client that sends a byte now and then has not. What the proxy itself takes does not count. Where the
    `client` is known, what is there already is not waited for.
    """

    def __init__(
        self,
        receive: Receive,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        client: Client | None = None,
    ) -> None:
        self._receive = receive
        self._client = client
        self._timeout_s = timeout_s
        self._clock = clock
        self._left = timeout_s
        self._whole = False

    async def __call__(self) -> Message:
        """The next message.

        Raises:
            ClientError: 408 request_timeout.
        """
        if self._whole or (self._client is not None and self._client.whole):
            return await self._receive()  # there is nothing to wait for
        start = self._clock()
        try:
            if self._left <= 0:
                raise TimeoutError
            async with asyncio.timeout(min(self._left, self._timeout_s)):
                message = await self._receive()
        except TimeoutError:
            raise ClientError(
                408, "request_timeout", f"request body: must not keep the proxy waiting for {self._timeout_s:g} s"
            ) from None
        self._left += len(message.get("body", b"")) / SLOWEST - (self._clock() - start)
        self._whole = not message.get("more_body", False)
        return message
