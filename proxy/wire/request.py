"""A chat request as its bytes say it, and what is worked out along its messages for all requests that share them."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.wire.chat import Message, Settings
from proxy.wire.grouping import Group
from proxy.wire.rawjson import Span


class Carry:
    """Values along a request's messages, one for each, under names.

    Each must depend on the messages up to its own alone: then those of the first `shared` messages, which the request
    has in common with one that was read before, are there already. What is put is never changed.
    """

    __slots__ = ("_before", "_own", "_shared")

    def __init__(self, before: "Carry | None" = None, shared: int = 0) -> None:
        self._own: dict[Hashable, tuple[Any, ...]] = {}
        # Not `before` itself, which holds those of the request before it.
        self._before: Mapping[Hashable, tuple[Any, ...]] = before._own if before is not None else {}
        self._shared = shared

    def get(self, name: Hashable) -> tuple[Any, ...]:
        """The values that are known, of the first messages as many as there are values."""
        own = self._own.get(name)
        return own if own is not None else self._before.get(name, ())[: self._shared]

    def put(self, name: Hashable, values: Iterable[Any]) -> None:
        """Keep the values of all messages, for the requests that go on from this one too."""
        self._own[name] = tuple(values)


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request: the client's own bytes, what they say, and where each message stands in them.

    `array` is where the list of messages stands, brackets included; `fields` is where the value of each top-level
    field stands, in the client's order. `groups` are the messages that belong together.
    """

    body: bytes
    settings: Settings
    messages: tuple[Message, ...]
    spans: tuple[Span, ...]
    array: Span
    fields: Mapping[str, Span]
    groups: tuple[Group, ...] = field(repr=False)
    carry: Carry = field(default_factory=Carry, repr=False, compare=False)

    def raw(self, index: int) -> bytes:
        """The client's own bytes of message `index`."""
        start, end = self.spans[index]
        return self.body[start:end]

    def field(self, name: str) -> bytes | None:
        """The client's own bytes of the top-level field `name`, None if there is none."""
        span = self.fields.get(name)
        return self.body[span.start : span.end] if span else None

    def followed(self, message: Message, groups: tuple[Group, ...]) -> "Chat":
        """The request with a message more, which is not in its bytes, and the groups that all of them make."""
        carry = Carry(self.carry, len(self.messages))
        return replace(self, messages=(*self.messages, message), groups=groups, carry=carry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What a body has in common with one that was read before: its bytes up to the end of a message, at `end`.

    `fields` are those that stand before the list of messages, which begins at `start`. `media` says whether what is
    shared may hold some, and at which byte the first begins.
    """

    end: int
    start: int
    fields: Mapping[str, Span]
    spans: tuple[Span, ...]
    messages: tuple[Message, ...]
    groups: tuple[Group, ...]
    media: int | None
    carry: Carry
