"""The bare pass-through in front of a fake upstream: what is tested where no trimming takes part."""

import asyncio

from starlette.types import Receive, Scope, Send

from proxy import routes
from proxy.errors import ClientError
from proxy.http import answers, targets
from proxy.upstream import Upstream
from proxy.upstream.relay import End


class Passthrough:
    """An ASGI application that forwards everything and notes how each turn ended."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.ends: asyncio.Queue[End] = asyncio.Queue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.upstream.aclose()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await answers.refuse_websocket(scope.get("extensions", {}), send)
        else:
            try:
                target = targets.of(scope)
            except ClientError as error:
                await answers.failure(error)(scope, receive, send)
                return
            await routes.passthrough(self.upstream, target, scope, receive, send, on_end=self.ends.put_nowait)
