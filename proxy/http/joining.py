"""A connection on which the head of an answer leaves together with the first of its body, where that is at hand."""

import asyncio
from typing import Any

_HEAD = (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4", b"HTTP/1.1 5")
_COPIED = 1 << 16  # bytes; what is larger is worth a call of its own


class Joining:
    """A transport that holds a head back until the next write, or until the event loop has gone round.

    That spares a system call, and the client that it is woken twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data, behind what is held back."""
        head, self._head = self._head, None
        if head is None and data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
        elif head is None or len(data) > _COPIED:
            if head is not None:
                self._transport.write(head)
            self._transport.write(data)
        else:
            self._transport.write(head + data)

    def write_eof(self) -> None:
        """Send no more: the other side may."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close the connection when all has been sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)
