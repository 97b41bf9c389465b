"""What every store promises. Keys and values are opaque bytes: a store knows nothing of ledgers or messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class StoreError(Exception):
    """The store is down, slow or refused; the caller goes on without it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A turn in flight: `key` is the digest it stands under, `turn` names it, `ttl_s` is how long it lives at most."""

    key: bytes
    turn: bytes
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """`values` run parallel to the keys asked for; `marked` are those asked mark keys under which a turn lives."""

    values: tuple[bytes | None, ...]
    marked: frozenset[bytes]


class Store(Protocol):
    """Bounded, expiring, shared by every worker that opens the same URL. Each call is one round trip.

    Every method may raise StoreError, and nothing else.
    """

    async def open(self) -> None:
        """Connect or create; called once, before anything else."""
        ...

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        """Values of keys, and which of `marks` have a live turn."""
        ...

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        """Write what is not there yet, and set a mark; gives the value that stands under each key afterwards.

        The first writer wins: a key that has a value keeps it. `ttl_s` None never expires, and where a bound is
        reached it goes only when nothing else is left.
        """
        ...

    async def unmark(self, key: bytes, turn: bytes) -> None:
        """End a turn's mark; other turns under the same key stay."""
        ...

    async def lease(self, key: bytes, ttl_s: float) -> bytes | None:
        """A token while nobody else holds the lease, else None."""
        ...

    async def release(self, key: bytes, token: bytes) -> None:
        """Give a lease back; a token that is no longer the holder's does nothing."""
        ...

    async def purge(self) -> int:
        """Forget everything; gives the number of values forgotten."""
        ...

    async def close(self) -> None:
        """Let go of connections and files."""
        ...
