"""A chat request as its bytes say it, and what is worked out along its messages for all requests that share them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.wire.chat import Message, Settings
from proxy.wire.grouping import Group
from proxy.wire.rawjson import Span

_POINTER = 8  # bytes


class Carry:
    """Values along a request's messages, one for each, under names.

    Each must depend on the messages up to its own alone: then those of the first `shared` messages, which the request
    has in common with one that was read before, are there already. What is put is never changed.
    """

    __slots__ = ("_before", "_own", "_shared", "_sizes", "_told")

    def __init__(self, before: "Carry | None" = None, shared: int = 0) -> None:
        self._own: dict[Hashable, tuple[Any, ...]] = {}
        # Not `before` itself, which holds those of the request before it.
        self._before: dict[Hashable, tuple[Any, ...]] = dict(before._own) if before is not None else {}
        self._shared = shared
        known: dict[Hashable, tuple[int, int]] = before._sizes if before is not None else {}
        self._sizes: dict[Hashable, tuple[int, int]] = {each: known[each] for each in self._before if each in known}
        self._told: Callable[[int], None] | None = None

    @property
    def size(self) -> int:
        """Bytes that all values take, an upper bound."""
        return sum(size for _, size in self._sizes.values())

    def get(self, name: Hashable) -> tuple[Any, ...]:
        """The values that are known, of the first messages as many as there are values."""
        own = self._own.get(name)
        return own if own is not None else self._before.get(name, ())[: self._shared]

    def put(self, name: Hashable, values: Iterable[Any], size: int = 0) -> None:
        """Keep the values of all messages, for the requests that go on from this one too.

        Those of them that were not known take `size` bytes, beside a pointer to each.
        """
        made = tuple(values)
        count, before = self._sizes.get(name, (0, 0))
        known = count if name in self._own else min(count, self._shared)
        total = (before * known // count if count else 0) + size + _POINTER * (len(made) - known)
        self._own[name] = made
        self._before.pop(name, None)
        self._sizes[name] = (len(made), total)
        if self._told is not None and total != before:
            self._told(total - before)

    def tell(self, grown: Callable[[int], None]) -> None:
        """Call `grown` with the bytes by which the values grow from now on; they may shrink."""
        self._told = grown


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
