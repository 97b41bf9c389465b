"""The bodies that were read last, so that one which begins like one of them is read from where it goes on.

Clients send their whole history with every request. A body is found by a few of its bytes, at places that double;
that it begins like another is then seen by comparing the two, byte for byte.
"""

from dataclasses import dataclass, replace
from itertools import accumulate, count, islice
from threading import Lock

from proxy.memories import Held
from proxy.wire import sizes
from proxy.wire.chat import Settings
from proxy.wire.grouping import first_of
from proxy.wire.memo import Memo
from proxy.wire.request import Chat, Shared

_LEAST = 1 << 12  # bytes; a smaller body is read as fast as it is found
_SAMPLE = 64  # bytes looked at in each place
_PER_MESSAGE = 750  # bytes of objects around a message: its own, its span, its group and its digests
_INTEGER = 32  # bytes
_TRIES = 3  # bodies that are compared before the longest beginning found will do


@dataclass(slots=True)
class _Kept:
    """A body that was read, its number, the keys it stands under, and where the first media in it may begin."""

    chat: Chat
    media: int | None
    keys: tuple[int, ...]
    number: int


class History:
    """The most recently read requests, at most `max_bytes` with all that was worked out along them. Thread-safe.

    A request that goes on from another takes its place. One that alone is over a quarter of `max_bytes` is not kept.
    Raises ValueError if `max_bytes` is negative.
    """

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        self._kept = Memo[_Kept](max_bytes, gone=self._forget)
        self._by_key: dict[int, _Kept] = {}
        self._numbers = count()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes_held(self) -> int:
        """The sizes of all requests, an upper bound of what is kept for them."""
        return self._kept.bytes_held

    def held(self) -> Held:
        """How much it holds."""
        return self._kept.held()

    def find(self, body: bytes) -> Shared | None:
        """The longest beginning that `body` shares with a request that is kept; None for less than a message."""
        best: _Kept | None = None
        most = tries = 0
        tried: _Kept | None = None
        for key in reversed(_keys(body)):
            kept = self._by_key.get(key)
            if kept is None or kept is tried:
                continue
            tried = kept
            count = _common(kept.chat, body)
            if count and kept.chat.spans[count - 1].end > (best.chat.spans[most - 1].end if best else 0):
                best, most = kept, count
            tries += 1
            if tries == _TRIES or (best is not None and 2 * best.chat.spans[most - 1].end >= len(body)):
                break
        return _shared(best, most) if best is not None else None

    def put(self, chat: Chat, media: int | None) -> None:
        """Keep a request, in the place of those that it goes on from; `media` is where its first may begin."""
        keys = _keys(chat.body)
        if not keys:
            return
        size = size_of(chat)
        if not self._kept.takes(size):
            return
        # Nobody asks for the settings of another request; decoded, schemas are many times their size.
        kept = _Kept(replace(chat, settings=Settings()), media, keys, next(self._numbers))
        with self._lock:
            for before in {each.number: each for key in keys if (each := self._by_key.get(key))}.values():
                if _goes_on(before.chat, chat):
                    self._kept.drop(before.number)
                    self._forget(before)
            self._by_key |= dict.fromkeys(keys, kept)
            self._kept.put(kept.number, kept, size)
        number = kept.number
        chat.carry.tell(lambda bytes_: self._grow(number, bytes_))

    def _grow(self, number: int, size: int) -> None:
        with self._lock:
            self._kept.grow(number, size)

    def _forget(self, kept: _Kept) -> None:
        for key in kept.keys:
            if self._by_key.get(key) is kept:
                del self._by_key[key]


def size_of(chat: Chat) -> int:
    """Bytes that a request takes in memory with all that was worked out along it, its settings apart."""
    return len(chat.body) + _PER_MESSAGE * len(chat.messages) + _texts(chat) + chat.carry.size


def _texts(chat: Chat) -> int:
    """Bytes that the messages' texts take."""
    known: tuple[int, ...] = chat.carry.get("bytes")
    new = map(sizes.of_message, chat.messages[len(known) :])
    found = (*known, *islice(accumulate(new, initial=known[-1] if known else 0), 1, None))
    chat.carry.put("bytes", found, _INTEGER * (len(found) - len(known)))
    return found[-1]


def _keys(body: bytes) -> tuple[int, ...]:
    """A key for each beginning of a body whose length is a power of two, the shortest first."""
    found = []
    key, at = 0, _LEAST
    while at <= len(body):
        key = hash((key, body[at - _SAMPLE : at]))
        found.append(key)
        at *= 2
    return tuple(found)


def _common(chat: Chat, body: bytes) -> int:
    """How many of a request's messages `body` has too, in the same places, with all that stands before them."""
    spans, own = chat.spans, memoryview(chat.body)
    if body.startswith(own[: spans[-1].end]):
        return len(spans)
    low, high, same = 0, len(spans) - 1, 0
    while low < high:
        middle = (low + high + 1) // 2
        end = spans[middle - 1].end
        if body.startswith(own[same:end], same):
            low, same = middle, end
        else:
            high = middle - 1
    return low


def _goes_on(before: Chat, chat: Chat) -> bool:
    return chat.body.startswith(memoryview(before.body)[: before.spans[-1].end])


def _shared(kept: _Kept, count: int) -> Shared:
    chat = kept.chat
    end = chat.spans[count - 1].end
    return Shared(
        end=end,
        start=chat.array.start,
        fields={name: span for name, span in chat.fields.items() if span.end <= chat.array.start},
        spans=chat.spans[:count],
        messages=chat.messages[:count],
        groups=first_of(chat.groups, count, len(chat.messages)),
        media=kept.media if kept.media is not None and kept.media < end else None,
        carry=chat.carry,
    )
