"""Request bodies: read whole within a limit, undone from their content coding, or streamed on as they arrive."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from starlette.types import Message, Receive

from proxy.errors import ClientError, ClientGone
from proxy.http import codings, headers
from proxy.http.headers import Headers


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body without its codings; `coded` says whether there were any."""

    body: bytes
    coded: bool


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A body that can only be passed on untouched, and why."""

    reason: str


async def read(receive: Receive, limit: int, fields: Headers = ()) -> bytes:
    """The whole request body, at most `limit` bytes.

    Raises ClientError `body_too_large` (413), before reading where `fields` declare the length, and ClientGone
    if the client leaves before its body is complete.
    """
    declared = headers.first(fields, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit, int(declared))
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit, None)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def decode(body: bytes, content_encoding: str, limit: int) -> Decoded | Undecodable:
    """`body` with its codings undone: gzip, deflate, br, zstd, in any stack.

    Never inflates beyond `limit` bytes: raises ClientError `body_too_large` (413) instead.
    """
    if not codings.names(content_encoding):
        return Decoded(body, coded=False)
    decoder = codings.decoder(content_encoding, limit)
    if decoder is None:
        return Undecodable(f"content-encoding: unknown coding, or too many, in {content_encoding[:200]!r}")
    parts: list[bytes] = []
    size = 0
    try:
        for part in decoder.feed(body):
            size += len(part)
            if size > limit:
                raise _too_large(limit, None)
            parts.append(part)
    except codings.TooLargeError:
        raise _too_large(limit, None) from None
    except codings.CorruptError as error:
        return Undecodable(f"content-encoding: body is not {content_encoding}: {error}")
    if not decoder.complete:
        return Undecodable(f"content-encoding: body ends in the middle of its {content_encoding} data")
    return Decoded(b"".join(parts), coded=True)


async def decode_aside(body: bytes, content_encoding: str, limit: int) -> Decoded | Undecodable:
    """What `decode` gives, worked out in a thread where it could hold the event loop up."""
    if not content_encoding or not codings.names(content_encoding):
        return Decoded(body, coded=False)
    return await asyncio.to_thread(decode, body, content_encoding, limit)


def _too_large(limit: int, size: int | None) -> ClientError:
    got = f", got {size}" if size is not None else ""
    return ClientError(413, "body_too_large", f"request body: must be at most {limit} bytes{got}")


class Upload:
    """A request body on its way through: iterate it for the bytes as they arrive, at most `ahead` messages early.

    While it is open it listens to the client by itself; `receive` is the ASGI callable for everybody else, and
    says only that the client has gone. An upstream that takes nothing for `idle_s` seconds makes it `stalled`,
    which ends the request in the same way; so does a client that is too slow, `refused` then.
    """

    def __init__(self, receive: Receive, *, idle_s: float | None = None, ahead: int = 4) -> None:
        self._receive = receive
        self._idle_s = idle_s
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(ahead)
        self._over = asyncio.Event()
        self._taken = False
        self.stalled = False
        self.refused: ClientError | None = None

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pump.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._taken:  # a client that retries on a new connection would send the rest as if it were the whole
            raise RuntimeError("an upload can be sent only once")
        self._taken = True
        while (part := await self._queue.get()) is not None:
            yield part

    async def receive(self) -> Message:
        """Waits until nothing can come of the request any more, and says http.disconnect."""
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _listen(self) -> None:
        try:
            while (message := await self._receive())["type"] != "http.disconnect":
                if part := message.get("body", b""):
                    await self._hand_on(part)
                if not message.get("more_body", False):
                    await self._hand_on(None)
        except TimeoutError:
            self.stalled = True
        except ClientError as error:
            self.refused = error
        self._over.set()

    async def _hand_on(self, part: bytes | None) -> None:
        if self._queue.full():
            async with asyncio.timeout(self._idle_s):
                await self._queue.put(part)
        else:
            self._queue.put_nowait(part)
