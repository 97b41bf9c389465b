"""A store that several workers share, which can be watched, slowed down and broken."""

import asyncio
from collections.abc import Mapping, Sequence

from proxy.stores.contract import Found, Mark, StoreError
from proxy.stores.memory import MemoryStore


class SharedStore(MemoryStore):
    """`calls` names each round trip, `written` holds every byte that came in; `down` refuses, `gate` holds up."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.asked: list[int] = []
        self.written: list[bytes] = []
        self.down = False
        self.gate: asyncio.Event | None = None

    async def _round_trip(self, name: str) -> None:
        self.calls.append(name)
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise StoreError("down")

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        self.asked.append(len(keys))
        await self._round_trip("look")
        return await super().look(keys, marks)

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        self.written += [*items, *items.values(), *((mark.key, mark.turn) if mark else ())]
        await self._round_trip("add" if items else "mark")
        return await super().add(items, ttl_s, mark)

    async def unmark(self, key: bytes, turn: bytes) -> None:
        await self._round_trip("unmark")
        await super().unmark(key, turn)

    async def lease(self, key: bytes, ttl_s: float) -> bytes | None:
        await self._round_trip("lease")
        return await super().lease(key, ttl_s)
