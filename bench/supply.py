"""Vectors as requests find them: waited for, prepared between them, or cold."""

import atexit
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import cast

from bench.vectors import DiskVectors
from proxy.embeddings import Embeddings, Vectors, key

CACHE_BYTES = 2**30
PATIENCE_S = 600.0
LIMIT_S = 0.15  # the default of `embeddings.wait_ms`


class State(StrEnum):
    """How vectors are there when a request comes.

    `waited`: all are, however long it takes. `prepared`: those that the turns before had made, from `warn` on, with
    time enough between turns; the rest is made within the time limit. `cold`: none are, and what the time limit allows
    is made.
    """

    WAITED = "waited"
    PREPARED = "prepared"
    COLD = "cold"


class _Source:
    """An embedder that makes anew what a request waits for, and takes from disk what nobody waits for."""

    def __init__(self, disk: DiskVectors, *, live: bool) -> None:
        self._disk = disk
        self.live = live

    @property
    def name(self) -> str:
        return self._disk.name

    def reads(self, text: str) -> bool:
        return self._disk.reads(text)

    def embed(self, texts: Sequence[str]) -> Sequence[Vectors]:
        return self._disk.anew(texts) if self.live else self._disk.embed(texts)

    def close(self) -> None:
        """Nothing: the model is for the whole run."""


class Supply:
    """The embeddings of a pipeline in one of these states; without vectors on disk there are none.

    `renew` before each request or conversation that must not profit from the one before; `repeat` before one that asks
    for the same again, under other rules: it gets what the first one got, without the wait, which `spared_s` tells.
    """

    def __init__(self, disk: DiskVectors | None, state: State = State.WAITED) -> None:
        self.state = state
        self.wait_s = PATIENCE_S if state is State.WAITED else LIMIT_S
        self._source = None if disk is None else _Source(disk, live=state is not State.WAITED)
        self._now = Embeddings(self._source, cache_bytes=CACHE_BYTES)
        self._had: dict[bytes, Vectors] = {}  # what was there for a request, and what it got: others get the same
        self._got: dict[bytes, Vectors] = {}
        self._repeats = False
        self._waited_s = 0.0
        atexit.register(self.close)  # a thread in the middle of a batch would abort the interpreter's end
        if disk is not None and state is not State.WAITED:
            disk.anew(["The model is loaded at the start of a proxy."])

    @property
    def embeddings(self) -> Embeddings | None:
        """What a pipeline takes."""
        return cast(Embeddings, self) if self._source is not None else None

    def close(self) -> None:
        """Stop making vectors."""
        self._now.close(PATIENCE_S)

    def renew(self, prepared: Iterable[str] = ()) -> None:
        """Forget all vectors; where they are prepared, have those of these texts made."""
        self._had, self._got, self._repeats, self._waited_s = {}, {}, False, 0.0
        if self._source is None or self.state is State.WAITED:
            return
        self.close()  # a batch that still runs would take time from the next request
        self._now = Embeddings(self._source, cache_bytes=CACHE_BYTES)
        if self.state is State.PREPARED:
            self.prepare({key(text): text for text in prepared})

    def repeat(self) -> None:
        """Give to the next request, of the same texts, what the last one got in time."""
        if self._source is not None and self.state is not State.WAITED and not self._repeats:
            self._repeats = True
            self.close()

    @property
    def spared_s(self) -> float:
        """The seconds that the request at hand would have waited, had it not been given what another one got."""
        return self._waited_s if self._repeats else 0.0

    def prepare(self, wanted: Mapping[bytes, str]) -> None:
        """Make vectors between two turns, which leave enough time for it."""
        if self._source is None:
            return
        self._source.live = False
        self._now.vectors(wanted, PATIENCE_S)
        self._source.live = self.state is not State.WAITED

    def known(self, wanted: Mapping[bytes, str]) -> dict[bytes, Vectors]:
        """As of Embeddings."""
        if self._repeats:
            return {each: self._had[each] for each in wanted if each in self._had}
        found = self._now.known(wanted)
        self._had |= found
        return found

    def vectors(self, wanted: Mapping[bytes, str], timeout_s: float) -> dict[bytes, Vectors]:
        """As of Embeddings."""
        if self._repeats:
            return {each: self._got[each] for each in wanted if each in self._got}
        start = time.perf_counter()
        self._got = self._now.vectors(wanted, timeout_s)
        self._waited_s = time.perf_counter() - start
        return self._got

    async def gather(self, wanted: Mapping[bytes, str], timeout_s: float) -> dict[bytes, Vectors]:
        """As of Embeddings."""
        return await self._now.gather(wanted, timeout_s)
