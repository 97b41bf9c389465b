"""What a request has to get past before anything is done with it: the right port for its path, and a key."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import ClientError
from proxy.http import answers, keys
from proxy.http.keys import Keyring

HEALTH = frozenset({"/healthz", "/readyz"})  # load balancers have no key, and learn nothing else here
_REALM = b'Basic realm="trimtab", charset="UTF-8"'


class Door:
    """ASGI middleware: answers 401, 403 or 404 itself, and lets the rest through, its key taken off it.

    With an `admin_port` the proxy's own paths are found there alone, and nothing else is. With keys they are for
    those marked `admin`. Health is open to all, everywhere. `on_refusal` is told the code of each refusal.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keyring: Keyring,
        admin_port: int | None = None,
        on_refusal: Callable[[str], None] = lambda code: None,
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._admin_port = admin_port
        self._on_refusal = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or have it answered."""
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        try:
            scope = self._checked(scope)
        except ClientError as error:
            self._on_refusal(error.code)
            asks = _REALM if is_own(scope["path"]) else b"Bearer"
            extra = [(b"www-authenticate", asks)] if error.status == 401 else []
            await answers.failure(error, extra)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _checked(self, scope: Scope) -> Scope:
        own = is_own(scope["path"])
        if self._admin_port is not None and own != (_port(scope) == self._admin_port):
            raise ClientError(404, "not_found", f"Nothing is at {scope['path'][:100]!r} on this port")
        if not self._keyring:
            return scope
        shown = self._keyring.show(scope["headers"])
        if own and not shown.key.admin:
            raise ClientError(403, "not_an_admin", f"The key {shown.key.name!r} does not open the proxy's own pages")
        return {**scope, "headers": shown.headers, keys.SCOPE: shown.key}


def is_own(path: str) -> bool:
    """Whether a path is one of those that the proxy keeps for itself, health apart."""
    return path in ("/metrics", "/trimtab") or path.startswith("/trimtab/")


def _port(scope: Scope) -> int | None:
    server = scope.get("server")
    return None if server is None else server[1]
