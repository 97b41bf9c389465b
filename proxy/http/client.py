"""The client of a request as its connection knows it: whether its body is there, and whether it is gone."""

from collections.abc import Callable, MutableMapping
from typing import Any
from weakref import ref

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

SCOPE = "trimtab.client"  # where an ASGI scope has it, if the server is one that knows


class Client:
    """Tells at once what `receive` tells only to somebody who waits for it, in a task of its own."""

    __slots__ = ("_cycle", "_flow", "_on_gone", "gone")

    def __init__(self, cycle: RequestResponseCycle, flow: FlowControl) -> None:
        # It holds the scope, and so this: with a reference the other way, every request that is over would stay in
        # memory until the collector comes, which with much in memory it seldom does.
        self._cycle = ref(cycle)
        self._flow = flow
        self._on_gone: Callable[[], None] | None = None
        self.gone = False

    @property
    def whole(self) -> bool:
        """Whether all of the request has come."""
        return (cycle := self._cycle()) is None or not cycle.more_body

    @property
    def answered(self) -> bool:
        """Whether all of the answer has been sent."""
        return (cycle := self._cycle()) is None or cycle.response_complete

    def watch(self, on_gone: Callable[[], None] | None) -> None:
        """Have `on_gone` called when the client leaves, in the place of who was called before; None: nobody."""
        self._on_gone = on_gone
        if on_gone is not None:
            self._flow.resume_reading()  # a connection that is not read from does not tell of its end

    def leave(self) -> None:
        """The connection has ended, for every request on it: the server itself tells the last of them alone."""
        self.gone = True
        if (cycle := self._cycle()) is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        if self._on_gone is not None:
            self._on_gone()


def of(scope: MutableMapping[str, Any]) -> Client | None:
    """The client of a request, None where the server does not tell."""
    client: Client | None = scope.get(SCOPE)
    return client
