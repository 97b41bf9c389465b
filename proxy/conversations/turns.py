"""Turns in flight: which requests are still being answered, here and in other workers.

A turn stands under the last digest of its request's chain. Here it is known at once; elsewhere through a mark in the
store, which is renewed while the turn lives and expires by itself when its worker dies.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes
from typing import Any

from proxy.conversations.known import Known
from proxy.stores.contract import Mark, Store, StoreError


@dataclass(slots=True)
class _Here:
    """The turns of this worker under one digest; `ended` is set when the last of them ends."""

    turns: set[bytes] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Turn:
    """One request that is being answered. `known` is what stands for it: the ledger to send it with."""

    def __init__(self, turns: "Turns", mark: Mark) -> None:
        self.mark = mark
        self.known = Known()
        self._turns = turns
        self._over: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.renewal: asyncio.Task[None] | None = None
        self._began = asyncio.get_running_loop().time()
        self._schedule()

    @property
    def live(self) -> bool:
        """Whether the turn has not ended."""
        return self._over is None

    def release(self) -> None:
        """End the turn without waiting for the store; to be called on the event loop, any number of times."""
        if self._over is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._over = self._turns.end(self)

    async def end(self) -> None:
        """End the turn and wait until others can know; the turn ends even if this is cancelled."""
        self.release()
        if self._over is not None:
            await asyncio.shield(self._over)

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._turns.renew_s, self._renew)

    def _renew(self) -> None:
        if asyncio.get_running_loop().time() - self._began > self._turns.longest_s:
            self.release()
            return
        if self.renewal is None or self.renewal.done():
            self.renewal = self._turns.renew(self.mark)
        self._schedule()


class Turns:
    """The turns in flight of this worker, and how to ask for those of others.

    A mark lives `ttl_s` and is renewed three times in that time. No turn is believed to last longer than
    `longest_s`. While others are waited for, the store is asked every `poll_s`. Raises ValueError unless all
    are positive.
    """

    def __init__(
        self,
        store: Store,
        *,
        ttl_s: float = 60.0,
        longest_s: float = 3600.0,
        poll_s: float = 0.1,
        new_id: Callable[[], bytes] = lambda: token_bytes(8),
    ) -> None:
        for name, value in (("ttl_s", ttl_s), ("longest_s", longest_s), ("poll_s", poll_s)):
            if value <= 0:
                raise ValueError(f"{name}: must be more than 0 seconds, got {value}")
        self.ttl_s = ttl_s
        self.renew_s = ttl_s / 3
        self.longest_s = longest_s
        self._store = store
        self._poll_s = poll_s
        self._new_id = new_id
        self._here: dict[bytes, _Here] = {}
        self._ending: dict[bytes, set[asyncio.Task[None]]] = {}
        self._left: Counter[bytes] = Counter()  # marks that could not be removed and have not expired yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: set[Turn] = set()

    def begin(self, digest: bytes) -> Turn:
        """A turn under the last digest of its request, known in this worker from now on.

        The mark that tells the others is not set yet: whoever writes the request's entry sets it along with it.
        """
        mark = Mark(key=digest, turn=self._new_id(), ttl_s=self.ttl_s)
        self._here.setdefault(digest, _Here()).turns.add(mark.turn)
        turn = Turn(self, mark)
        self._live.add(turn)
        return turn

    def here(self, prefixes: Sequence[bytes]) -> list[bytes]:
        """Those of the digests under which a turn of this worker is in flight."""
        return list(filter(self._here.__contains__, prefixes)) if self._here else []

    def elsewhere(self, marked: Collection[bytes]) -> set[bytes]:
        """Those of the digests marked in the store that are not marks of turns which ended in this worker.

        Their removal may be under way still, or may have failed.
        """
        return {digest for digest in marked if digest not in self._ending and digest not in self._left}

    async def wait(self, digests: Sequence[bytes], timeout_s: float) -> bool:
        """Wait until no turn under any of these digests is in flight; False if one still is after `timeout_s`.

        Where the store does not answer, only the turns of this worker count.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for digest in digests:
                    if (here := self._here.get(digest)) is not None:
                        await here.ended.wait()
                    if ending := self._ending.get(digest):
                        await asyncio.wait(ending)
                while True:
                    if not self.elsewhere(await self._marked(digests)):
                        return True
                    await asyncio.sleep(self._poll_s)
        except TimeoutError:
            return False

    async def close(self) -> None:
        """End every turn and wait for what is under way."""
        for turn in tuple(self._live):
            turn.release()
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def end(self, turn: Turn) -> "asyncio.Task[None]":
        """Forget a turn here at once; the task removes its mark. To be called once for each turn."""
        self._live.discard(turn)
        here = self._here[turn.mark.key]
        here.turns.discard(turn.mark.turn)
        if not here.turns:
            del self._here[turn.mark.key]
            here.ended.set()
        task = self._start(self._unmark(turn.mark, turn.renewal))
        self._ending.setdefault(turn.mark.key, set()).add(task)
        task.add_done_callback(partial(self._ended, turn.mark.key))
        return task

    def renew(self, mark: Mark) -> "asyncio.Task[None]":
        """Set a mark again, for another `ttl_s`."""
        return self._start(self._mark(mark))

    async def _mark(self, mark: Mark) -> None:
        with suppress(StoreError):
            await self._store.add({}, None, mark)

    async def _unmark(self, mark: Mark, renewal: "asyncio.Task[None] | None") -> None:
        if renewal is not None:
            await renewal  # or it would set the mark again behind us
        try:
            await self._store.unmark(mark.key, mark.turn)
        except StoreError:
            self._left[mark.key] += 1
            asyncio.get_running_loop().call_later(mark.ttl_s, self._expired, mark.key)

    def _ended(self, digest: bytes, task: "asyncio.Task[None]") -> None:
        self._ending[digest].discard(task)
        if not self._ending[digest]:
            del self._ending[digest]

    def _expired(self, digest: bytes) -> None:
        self._left[digest] -= 1
        if self._left[digest] <= 0:
            del self._left[digest]

    async def _marked(self, digests: Sequence[bytes]) -> Collection[bytes]:
        try:
            return (await self._store.look((), digests)).marked
        except StoreError:
            return ()

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
