"""Vectors of texts: kept by content, made on a thread of their own, newest first, and never waited for past a deadline.

A text that is long has one vector for each piece that its model can read. Whatever goes wrong costs vectors and
nothing else: who asks gets those that are there.
"""

import asyncio
import atexit
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Protocol
from weakref import WeakSet

import numpy as np
import structlog
from numpy.typing import NDArray

from proxy.embeddings.batches import Pace, batch
from proxy.embeddings.stats import Stats as Stats
from proxy.embeddings.waiting import Texts
from proxy.guard import Faults
from proxy.memories import Held, Memories
from proxy.wire.memo import Memo

Vectors = NDArray[np.float16]
"""The unit vectors of a text's pieces, one a row: half precision, which moves a cosine by less than 0.001."""

LONGEST_PAUSE_S = 300.0
QUEUE_BYTES = 32 * 2**20  # the most that texts take which are to be prepared
QUIET_S, QUIETEST_S = 0.05, 1.0  # a request goes on without what is late: for so long it has the processor to itself

_log = structlog.get_logger("trimtab")


class Embedder(Protocol):
    """Makes vectors of texts. `embed` and `close` are called from one thread alone, and may block."""

    @property
    def name(self) -> str:
        """Backend and model: vectors of one name compare with each other."""
        ...

    def reads(self, text: str) -> bool:
        """Whether the model knows the script that `text` is written in. Quick, and from any thread."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[NDArray[np.floating]]:
        """For each text the unit vectors of its pieces, one a row, at least one.

        Raises EmbedderMissing where this will never work, anything else where it may work later.
        """
        ...

    def close(self) -> None:
        """Let go of models and connections."""
        ...


class EmbedderMissing(Exception):  # noqa: N818 - a state of the installation
    """The embedder cannot work here: a package or a model is not there. The message says what would do."""


def key(text: str) -> bytes:
    """A content digest of `text`, 16 bytes of BLAKE2b: what its vectors are kept under."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(slots=True, eq=False)
class _Waiter:
    missing: set[bytes]
    first: bytes = b""  # what all others are compared with
    until: float = 0.0
    done: Future[None] = field(default_factory=Future)


class Embeddings:
    """The vectors of an embedder; safe to use from any thread. Without an embedder there are none.

    `cache_bytes` bounds what is kept (about 1.4 KB for a text of one piece and 384 dimensions), `queue` the texts that
    wait to be prepared: the oldest make room. Texts in a script that the model does not know have no vectors. After a
    failure the embedder is left alone for a while that doubles with each; one that is missing is asked once. The
    thread starts with the first text and does not keep the process alive.

    Raises ValueError for a queue below 1.
    """

    def __init__(
        self,
        embedder: Embedder | None,
        *,
        cache_bytes: int = 64 * 2**20,
        queue: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if queue < 1:
            raise ValueError(f"queue: must be at least 1, got {queue}")
        self._embedder = embedder
        self._known = Memo[Vectors](cache_bytes)
        self._size = queue
        self._clock = clock
        self._change = threading.Condition()
        self._urgent, self._later = Texts(), Texts()
        self._busy: frozenset[bytes] = frozenset()
        self._waiters: list[_Waiter] = []
        self._preparing: list[_Waiter] = []
        self._pace = Pace()
        self._quiet = self._hushed = 0.0
        self._stats, self._hits, self._misses = Stats(), 0, 0
        self._thread: threading.Thread | None = None
        self._failures, self._resume = 0, 0.0
        self._stopped = embedder is None

    @property
    def available(self) -> bool:
        """Whether vectors can be expected at all; false while the embedder is left alone."""
        return not self._stopped and self._clock() >= self._resume

    def known(self, wanted: Mapping[bytes, str]) -> dict[bytes, Vectors]:
        """The vectors that are there, by key."""
        found = {each: vectors for each in wanted if (vectors := self._known.get(each)) is not None}
        with self._change:
            self._hits += len(found)
            self._misses += len(wanted) - len(found)
        return found

    def vectors(self, wanted: Mapping[bytes, str], timeout_s: float) -> dict[bytes, Vectors]:
        """The vectors of texts, given by their keys in the order of the conversation, that are there in time.

        Blocks for at most `timeout_s` seconds; what is late is made all the same, behind what is urgent.
        """
        waiter = self._ask(wanted, timeout_s)
        if waiter is not None:
            try:
                waiter.done.result(timeout_s)
            except TimeoutError:
                self._give_up(waiter, wanted)
        return self.known(wanted)

    async def gather(self, wanted: Mapping[bytes, str], timeout_s: float) -> dict[bytes, Vectors]:
        """The same, for the event loop."""
        waiter = self._ask(wanted, timeout_s)
        if waiter is not None:
            try:
                await asyncio.wait([asyncio.wrap_future(waiter.done)], timeout=timeout_s)
            finally:
                self._give_up(waiter, wanted)
        return self.known(wanted)

    def prepare(self, wanted: Mapping[bytes, str], then: Callable[[], None] = lambda: None) -> None:
        """Make vectors of texts, given in the order of the conversation, when there is time: the newest first.

        `then` is called once none of them waits any more, here or on the embedder's thread; it must be quick.
        """
        with self._change:
            if self.available:
                missing = {each: text for each, text in self._readable(wanted) if self._known.get(each) is None}
                if missing:
                    waiter = _Waiter(set(missing))
                    waiter.done.add_done_callback(lambda _: then())
                    self._preparing.append(waiter)
                    self._put_later({each: text for each, text in missing.items() if each not in self._urgent})
                    return
        then()

    @property
    def memories(self) -> Memories:
        """What it remembers, and what waits."""
        texts = self._later
        return {"vectors": self._known.held, "texts": lambda: Held(len(texts), texts.bytes, QUEUE_BYTES)}

    @property
    def stats(self) -> Stats:
        """How it has been doing."""
        with self._change:
            waiting = len(self._urgent) + len(self._later) + len(self._busy)
            return replace(self._stats, hits=self._hits, misses=self._misses, waiting=waiting)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Stop, and let the embedder go; False if it is still at work after `timeout_s` seconds."""
        with self._change:
            self._stopped = True
            self._drop_all()
            self._change.notify_all()
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _readable(self, wanted: Mapping[bytes, str]) -> Iterator[tuple[bytes, str]]:
        if self._embedder is not None:
            yield from ((each, text) for each, text in wanted.items() if self._embedder.reads(text))

    def _ask(self, wanted: Mapping[bytes, str], timeout_s: float) -> _Waiter | None:
        """Put what is missing before everything else; None where there is nothing to wait for."""
        with self._change:
            missing = {each: text for each, text in self._readable(wanted) if self._known.get(each) is None}
            if not missing or not self.available:
                return None
            if timeout_s <= 0:
                self._put_later(missing)
                return None
            waiter = _Waiter(set(missing), next(reversed(missing)), self._clock() + timeout_s)
            self._waiters.append(waiter)
            for each, text in missing.items():
                if each in self._busy:
                    continue
                self._later.pop(each, None)
                self._urgent[each] = text
            self._wake()
            return waiter

    def _give_up(self, waiter: _Waiter, wanted: Mapping[bytes, str]) -> None:
        """Nobody waits any more: what is left of it is made when there is time."""
        with self._change:
            if waiter not in self._waiters:
                return
            self._waiters.remove(waiter)
            self._be_quiet()
            still = set().union(*(other.missing for other in self._waiters))
            left = {each: wanted[each] for each in wanted if each in waiter.missing and each not in still}
            self._put_later({each: text for each, text in left.items() if self._urgent.pop(each, None) is not None})

    def _put_later(self, wanted: Mapping[bytes, str]) -> None:
        for each, text in wanted.items():
            if each not in self._busy and self._known.get(each) is None:
                self._later[each] = text
        while len(self._later) > self._size or self._later.bytes > QUEUE_BYTES:
            dropped = self._later.oldest()
            del self._later[dropped]
            self._stats = replace(self._stats, dropped=self._stats.dropped + 1)
            self._tell([dropped], self._preparing)
        if self._later:
            self._wake()

    def _wake(self) -> None:
        if self._thread is None and self._embedder is not None:
            work = partial(self._run, self._embedder)
            self._thread = threading.Thread(target=work, name="trimtab-embeddings", daemon=True)
            self._thread.start()
            _running.add(self)
        self._change.notify_all()

    def _run(self, embedder: Embedder) -> None:
        faults = Faults()
        while texts := self._next():
            vectors: Sequence[NDArray[np.floating]] = ()
            started = self._clock()
            try:
                with faults.guard("embedder", EmbedderMissing):
                    vectors = embedder.embed(list(texts.values()))
            except EmbedderMissing as missing:
                _log.warning("embeddings are off", embedder=embedder.name, reason=str(missing))
                self._stopped = True
            self._finish(texts, vectors, self._clock() - started)
        with faults.guard("embedder"):
            embedder.close()

    def _next(self) -> dict[bytes, str]:
        """The newest texts, those first that somebody waits for; empty once closed."""
        with self._change:
            while not self._stopped:
                now = self._clock()
                left_s = max((waiter.until for waiter in self._waiters), default=now) - now
                quiet_s = self._quiet - now
                waiting, left = (self._urgent, left_s) if self._urgent else (self._later, None)
                first = [waiter.first for waiter in self._waiters]
                if waiting and (self._urgent or quiet_s <= 0):
                    if chosen := batch(waiting, self._pace, left, first):
                        self._busy = frozenset(chosen)
                        return {each: waiting.pop(each) for each in chosen}
                    self._be_late()
                else:
                    self._change.wait(quiet_s if waiting else None)
            return {}

    def _be_quiet(self) -> None:
        """Leave the processor to who goes on without what is late, but not for ever."""
        now = self._clock()
        if now >= self._quiet:
            self._hushed = now
        self._quiet = min(now + QUIET_S, self._hushed + QUIETEST_S)

    def _be_late(self) -> None:
        """Nothing more will be there in time, so nobody needs to wait for it."""
        late = dict(self._urgent)
        self._urgent.clear()
        self._be_quiet()
        self._put_later(late)
        self._tell([*late], self._waiters)

    def _finish(self, made: Mapping[bytes, str], vectors: Sequence[NDArray[np.floating]], seconds: float) -> None:
        """Keep the vectors of a batch and tell who waits for them; without vectors it has failed."""
        keys = [*made]
        for each, rows in zip(keys, vectors, strict=False):
            half = np.atleast_2d(rows).astype(np.float16)
            self._known.put(each, half, half.nbytes)
        with self._change:
            self._busy = frozenset()
            failed = len(vectors) != len(keys)
            self._stats = replace(
                self._stats,
                calls=self._stats.calls + 1,
                made=self._stats.made + (0 if failed else len(keys)),
                failures=self._stats.failures + failed,
                seconds=self._stats.seconds + seconds,
            )
            if not failed:
                if self._stats.calls > 1:  # the first loads the model
                    self._pace.learn(sum(map(len, made.values())), seconds)
                self._failures = 0
            else:
                self._failures += 1
                self._resume = self._clock() + min(2.0**self._failures, LONGEST_PAUSE_S)
                self._drop_all()
            for waiters in (self._waiters, self._preparing):
                self._tell(keys, waiters)

    def _drop_all(self) -> None:
        for waiters in (self._waiters, self._preparing):
            self._tell([*self._urgent, *self._later, *self._busy], waiters)
        self._urgent.clear()
        self._later.clear()

    def _tell(self, keys: Collection[bytes], waiters: list[_Waiter]) -> None:
        """Tell who waits for vectors that they are there, or that they will not be."""
        for waiter in [*waiters]:
            waiter.missing.difference_update(keys)
            if not waiter.missing:
                waiters.remove(waiter)
                if not waiter.done.done():
                    waiter.done.set_result(None)


_running: WeakSet[Embeddings] = WeakSet()


@atexit.register
def _leave() -> None:
    """Wait until models are idle: an interpreter that ends while a thread is inside one aborts the process."""
    for embeddings in [*_running]:
        embeddings.close(timeout_s=30.0)
