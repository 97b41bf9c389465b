"""The application's front: pages of its own through Starlette, and what is for an upstream straight on."""

from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.http.door import HEALTH, is_own


class Front(Starlette):
    """A Starlette application whose requests for paths that are not the proxy's own go to `onward`, past all routing.

    They are nearly all that come, and there is nothing for them to be found but that one place.
    """

    def __init__(self, onward: ASGIApp, **settings: Any) -> None:
        super().__init__(**settings)
        self._onward = onward

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or have it answered."""
        if scope["type"] == "http" and not (is_own(scope["path"]) or scope["path"] in HEALTH):
            await self._onward(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
