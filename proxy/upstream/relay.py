"""A relayed reply: the ASGI response that owns an upstream's reply and hands it on as it arrives."""

from collections.abc import Callable
from enum import StrEnum

from starlette.types import Receive, Scope, Send

from proxy.errors import ClientGone, UpstreamError
from proxy.guard import Faults
from proxy.http import headers as fields
from proxy.http.client import Client
from proxy.http.headers import Headers
from proxy.http.presence import Presence
from proxy.upstream import Reply


class End(StrEnum):
    """How a turn ended. Whether a reply that ended in order is done (`[DONE]`) is for its reader to say."""

    DONE = "done"
    EOF = "eof"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    CLIENT_GONE = "client_gone"
    CANCELLED = "cancelled"  # the server stops, or never got to sending

    @classmethod
    def of(cls, error: UpstreamError) -> "End":
        """The end that an upstream's error makes."""
        return cls.UPSTREAM_TIMEOUT if error.code == "upstream_timeout" else cls.UPSTREAM_ERROR


class Relay:
    """Sends an upstream's status, header fields and bytes to the client, and closes the reply however it ends.

    `extra` header fields are added and replace their namesakes. `on_chunk` sees every chunk after it has been
    sent, `on_end` is called exactly once, after the reply is closed; both must be quick, and what they raise
    is noted in `faults` and goes no further. The `client` tells when it leaves; without one, `receive` does.
    A reply that breaks off reaches the client as a broken transfer.
    """

    def __init__(
        self,
        reply: Reply,
        *,
        extra: Headers = (),
        on_chunk: Callable[[bytes], None] | None = None,
        on_end: Callable[[End], None] | None = None,
        faults: Faults | None = None,
        client: Client | None = None,
    ) -> None:
        self._reply = reply
        self._extra = extra
        self._on_chunk = on_chunk
        self._on_end = on_end
        self._faults = faults if faults is not None else Faults()
        self._client = client
        self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request whose body has been read; returns when the turn has ended, whatever its end."""
        end = End.CANCELLED
        try:
            async with Presence(receive, self._client) as presence:
                end = await self._relay(send, presence, bodiless=scope["method"] == "HEAD")
        except (ClientGone, OSError):  # servers may say with an OSError from `send` that nobody is there (ASGI 2.4)
            end = End.CLIENT_GONE
        finally:
            await self.aclose(end)

    async def aclose(self, end: End = End.CANCELLED) -> None:
        """Close the reply and report the end, once; for a relay that is never called too."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._reply.aclose()
        finally:
            if self._on_end is not None:
                with self._faults.guard("on_end"):
                    self._on_end(end)

    async def _relay(self, send: Send, presence: Presence, *, bodiless: bool) -> End:
        status = self._reply.status
        headers = fields.for_client(self._reply.headers, status=status, extra=self._extra)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        on_chunk, guarded = self._on_chunk, self._faults.guard("on_chunk")
        try:
            if not (bodiless or status in (204, 304)):
                async for chunk in self._reply:
                    if last := self._reply.ended:
                        presence.settle()
                    await send({"type": "http.response.body", "body": chunk, "more_body": not last})
                    if on_chunk is not None:
                        with guarded:
                            on_chunk(chunk)
                    if last:
                        return End.EOF
        except UpstreamError as error:
            # Without its last message the server closes the connection, and the client sees the break.
            return End.of(error)
        presence.settle()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return End.EOF
