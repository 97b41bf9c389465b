"""Vectors as requests find them: waited for, prepared between them, or cold."""

import atexit
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

    `renew` before each request or conversation that must not profit from the one before.
    """

    def __init__(self, disk: DiskVectors | None, state: State = State.WAITED) -> None:
        self.state = state
        self.wait_s = PATIENCE_S if state is State.WAITED else LIMIT_S
        self._source = None if disk is None else _Source(disk, live=state is not State.WAITED)
        self._now = Embeddings(self._source, cache_bytes=CACHE_BYTES)
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
        if self._source is None or self.state is State.WAITED:
            return
        self.close()  # a batch that still runs would take time from the next request
        self._now = Embeddings(self._source, cache_bytes=CACHE_BYTES)
        if self.state is State.PREPARED:
            self.prepare({key(text): text for text in prepared})

    def prepare(self, wanted: Mapping[bytes, str]) -> None:
        """Make vectors between two turns, which leave enough time for it."""
        if self._source is None:
            return
        self._source.live = False
        self._now.vectors(wanted, PATIENCE_S)
        self._source.live = self.state is not State.WAITED

    def known(self, wanted: Mapping[bytes, str]) -> dict[bytes, Vectors]:
        """As of Embeddings."""
        return self._now.known(wanted)

    def vectors(self, wanted: Mapping[bytes, str], timeout_s: float) -> dict[bytes, Vectors]:
        """As of Embeddings."""
        return self._now.vectors(wanted, timeout_s)

    async def gather(self, wanted: Mapping[bytes, str], timeout_s: float) -> dict[bytes, Vectors]:
        """As of Embeddings."""
        return await self._now.gather(wanted, timeout_s)
