"""Forgetting what a store holds, for whoever asks on the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.stores.opening import backend
from proxy.stores.urls import Address, Backend, parse


@dataclass(frozen=True, slots=True)
class Purged:
    """How many entries were forgotten, of which store; `why` tells why there was nothing to forget."""

    store: str
    entries: int
    why: str | None = None


async def purge(url: str, *, keep: Sequence[bytes] = ()) -> Purged:
    """Forget everything in the store at `url` but what stands under the keys `keep`, which is put back at once.

    Raises:
        ConfigError: the URL names no store.
        StoreError: the store does not answer.
    """
    address = parse(url)
    if address.backend is Backend.MEMORY:
        return Purged(address.name, 0, "each process keeps its own memory and forgets it when it ends")
    if _is_missing(address):
        return Purged(address.name, 0, "there is no such file")
    store = backend(address)
    try:
        await store.open()
        kept = dict(zip(keep, (await store.look(keep)).values, strict=True))
        standing = {key: value for key, value in kept.items() if value is not None}
        entries = await store.purge() - len(standing)
        if standing:
            await store.add(standing, None)
    finally:
        await store.close()
    return Purged(address.name, max(entries, 0))


def _is_missing(address: Address) -> bool:
    return address.backend is Backend.SQLITE and not Path(address.target).exists()
