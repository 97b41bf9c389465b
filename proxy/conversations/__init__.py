"""What was decided for a conversation, found again and added to: a bounded memory of this worker in front of a store.

An entry stands under the digest of the prefix it was made for, and is never changed: the first writer wins, and every
request that finds it sends the same form. A prefix about which more is decided later (by an overflow's retry, or under
a smaller budget) has further entries in generations, each under a key of its own; the highest counts.

A request that decides nothing writes the entry it replayed under its own last digest, along with the mark of its turn.
So the next request finds it within the newest few digests, however long ago the last decision was.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from secrets import token_hex

from proxy.conversations import identity
from proxy.conversations.identity import DIGEST_BYTES, Chain
from proxy.conversations.known import Entry, Known, Status, extend
from proxy.conversations.ledger import Ledger
from proxy.conversations.ledger_codec import Seal, decode, encode
from proxy.conversations.notes import Keys
from proxy.conversations.recent import Recent
from proxy.conversations.turns import Turn, Turns
from proxy.memories import Memories
from proxy.stores.contract import Found, Mark, Store, StoreError
from proxy.wire.memo import Memo
from proxy.wire.request import Carry

LOOK = 64
"""How many of the newest digests are looked up first."""
GENERATIONS = 8
"""How many entries one prefix may have; what is decided beyond that is known to the worker that decided it."""
DIGEST_MEMORY = 64  # bytes that the object of a digest takes


@dataclass(frozen=True, slots=True)
class _Hit:
    """An entry that was found, and where."""

    index: int
    generation: int
    entry: Entry
    value: bytes


class Conversations:
    """The conversations of one store.

    `salt` goes into every digest; `ttl_s` is how long entries live; at most `capacity` entries of at most `max_bytes`
    together are held in memory, and `ledger_bytes` of them ready to be used; `seal` encrypts placeholders. `clock`
    gives seconds since the epoch, `new_id` the random name of a conversation. Nothing here raises for a store that
    fails.
    """

    def __init__(
        self,
        store: Store,
        *,
        salt: bytes,
        ttl_s: float,
        capacity: int = 10_000,
        max_bytes: int = 64 * 2**20,
        ledger_bytes: int = 16 * 2**20,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: token_hex(8),
        seal: Seal | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._store = store
        self._salt = salt
        self._ttl_s = ttl_s
        self._clock = clock
        self._new_id = new_id
        self._seal = seal
        self._decoded = Memo[Entry](ledger_bytes)
        self._recent = Recent(capacity=capacity, max_bytes=max_bytes, ttl_s=ttl_s, clock=clock)
        self._turns = turns if turns is not None else Turns(store)

    @property
    def keys(self) -> Keys:
        """What the notes of these conversations are rendered with: the same in every worker that has the salt."""
        fence = blake2b(self._salt, digest_size=32, person=b"trimtab notes").digest()
        return Keys(fence, self._seal.open if self._seal is not None else None)

    def seal(self, text: bytes) -> bytes:
        """A text as an entry may hold it: sealed, where there is a key."""
        return self._seal.seal(text) if self._seal is not None else text

    @property
    def memories(self) -> Memories:
        """What it remembers, by kind."""
        return {"decisions": self._recent.held, "ledgers": self._decoded.held}

    def chain(
        self,
        digests: Sequence[bytes],
        *,
        route: str,
        tenant: bytes = b"",
        session: str | None = None,
        variant: str = "",
        carry: Carry | None = None,
    ) -> Chain:
        """The digests of each prefix of a request's messages, given their canonical digests; see `identity.root`.

        With the request's `carry`, those of messages that an earlier request had too are not worked out again.
        """
        root = identity.root(self._salt, route, tenant, session, variant)
        return identity.chain(root, digests) if carry is None else chained(digests, root, carry)

    async def replay(self, chain: Chain) -> Known:
        """What is known of the conversation that a request continues.

        One round trip; a second only where the newest digests tell nothing and there are others, or where the
        prefix that was found has been decided about more than once. Of turns in other workers, those are seen that
        stand under the newest digests (LOOK).
        """
        hit = self._here(chain)
        start = hit.index + 1 if hit is not None else 0
        middle = max(start, len(chain) - LOOK)
        prefixes = chain[:-1]
        marked: frozenset[bytes] = frozenset()
        failed = False
        try:
            again = [_key(chain[hit.index], hit.generation + 1)] if hit is not None else []
            found = await self._store.look(_keys(chain[middle:]) + again, prefixes[-LOOK:])
            marked = found.marked
            newer = self._newest(chain, middle, found)
            if newer is None and again and found.values[-1] is not None and hit is not None:
                newer = self._hit(hit.index, hit.generation + 1, found.values[-1])
            if newer is None and start < middle:
                found = await self._store.look(_keys(chain[start:middle]))
                newer = self._newest(chain, start, found)
            if newer is not None:
                hit = newer
                hit = await self._last(chain, newer)
                self._recent.put(chain[hit.index], hit.value, hit.generation)
        except StoreError:
            failed = True
        turns = {*self._turns.here(prefixes), *self._turns.elsewhere(marked)}
        newest_first = tuple(digest for digest in reversed(prefixes) if digest in turns) if turns else ()
        return self._known(chain, hit, newest_first, failed)

    async def commit(self, chain: Chain, ledger: Ledger, known: Known) -> Known:
        """Write a decision down, before its request is sent; gives what is known of the request afterwards.

        That is the decision itself, or that of another request with the same messages which was first:
        `ledger.decision` tells. With the store failing, the decision stands in this worker.
        """
        return await self._write(chain, known, ledger, None)

    async def begin(self, chain: Chain, known: Known, ledger: Ledger | None = None) -> Turn:
        """Begin the request's turn, in one round trip with writing its entry down.

        With a `ledger` that is a commit; without one the entry that was replayed goes on. The turn's `known` is what
        stands afterwards: what the request is to be sent with, and what a retry decides and commits on.
        """
        turn = self._turns.begin(chain[-1])
        try:
            turn.known = await self._write(chain, known, ledger, turn.mark)
        except BaseException:
            turn.release()
            raise
        return turn

    async def wait(self, turns: Sequence[bytes], timeout_s: float) -> bool:
        """Wait for the turns in flight that a request found; False if one still is after `timeout_s`."""
        return await self._turns.wait(turns, timeout_s)

    @asynccontextmanager
    async def lease(self, work: bytes, ttl_s: float) -> AsyncIterator[bool]:
        """A lock among all workers around work that costs money, at most `ttl_s` long; False: leave it undone.

        It is not given while somebody holds it, nor where the store does not answer: then nobody knows whether the
        work is being paid for already.
        """
        key = b"lease:" + work
        token = None
        with suppress(StoreError):
            token = await self._store.lease(key, ttl_s)
        try:
            yield token is not None
        finally:
            if token is not None:
                with suppress(StoreError):
                    await self._store.release(key, token)

    def settled(self, standing: Mapping[bytes, bytes]) -> None:
        """What a store that was down has now, after what waited was written back: where others were first, theirs."""
        for key, value in standing.items():
            self._recent.replace(key[:DIGEST_BYTES], value, _generation(key))

    async def close(self) -> None:
        """End every turn; the store is left to whoever opened it."""
        await self._turns.close()

    def _here(self, chain: Chain) -> _Hit | None:
        recent = self._recent.newest(chain)
        return self._hit(recent[0], recent[1].generation, recent[1].value) if recent is not None else None

    def _hit(self, index: int, generation: int, value: bytes | None) -> _Hit | None:
        if value is None:
            return None
        entry = self._decoded.get(value)
        if entry is None:
            entry = decode(value, self._seal)
        return _Hit(index, generation, entry, value) if entry is not None else None

    def _newest(self, chain: Chain, start: int, found: Found) -> _Hit | None:
        """The newest readable entry among the answers for the digests from `start` on (see `_keys`)."""
        count = (len(found.values)) // 2
        for offset in range(count - 1, -1, -1):
            for generation in (1, 0):
                value = found.values[2 * offset + generation]
                if value is not None and (hit := self._hit(start + offset, generation, value)) is not None:
                    return hit
        return None

    async def _last(self, chain: Chain, hit: _Hit) -> _Hit:
        """The entry of the last generation of a prefix; asks only where there is more than one."""
        if hit.generation == 0:
            return hit
        generations = range(hit.generation + 1, GENERATIONS)
        found = await self._store.look([_key(chain[hit.index], generation) for generation in generations])
        later = (self._hit(hit.index, g, value) for g, value in zip(generations, found.values, strict=True))
        return max((hit, *filter(None, later)), key=lambda one: one.generation)

    def _known(self, chain: Chain, hit: _Hit | None, turns: tuple[bytes, ...], failed: bool) -> Known:
        now = self._clock()
        if hit is None:
            status = Status.MISSING if failed else Status.NONE
            return Known(status=status, seen=extend((), 0, len(chain), now), turns=turns, store_failed=failed)
        return Known(
            status=Status.REPLAYED if hit.entry.ledger else Status.NONE,
            entry=hit.entry,
            index=hit.index,
            generation=hit.generation,
            seen=extend(hit.entry.seen, hit.index + 1, len(chain), now),
            turns=turns,
            store_failed=failed,
        )

    async def _write(self, chain: Chain, known: Known, ledger: Ledger | None, mark: Mark | None) -> Known:
        """Write the request's entry under its last digest, unless one stands there that holds against it."""
        last = len(chain) - 1
        failed = False
        there = self._mine(chain, known, ledger)
        hit = there if there is not None else self._proposal(chain, known, ledger)
        try:
            if there is None:
                hit = await self._settle(chain, hit, known, ledger, mark)
            elif mark is not None:
                await self._store.add({}, self._ttl_s, mark)
        except StoreError:
            failed = True
            hit = self._mine(chain, known, ledger) or hit
        if 0 <= known.index < last:
            self._recent.retire(chain[known.index])
        self._recent.put(chain[last], hit.value, hit.generation)
        return replace(
            known,
            status=Status.REPLAYED if hit.entry.ledger else known.status,
            entry=hit.entry,
            index=last,
            generation=hit.generation,
            store_failed=known.store_failed or failed,
        )

    def _mine(self, chain: Chain, known: Known, ledger: Ledger | None) -> _Hit | None:
        """What this worker knows to stand under the last digest and to hold against what is to be written.

        With the store down that is how two identical requests at once come to the same form.
        """
        last = len(chain) - 1
        if ledger is None and known.index == last and known.entry is not None:
            return _Hit(last, known.generation, known.entry, encode(known.entry, self._seal))
        hit = self._here(chain[last:])
        if hit is None or not _outranks(hit.entry, known, ledger):
            return None
        return replace(hit, index=last)

    def _proposal(self, chain: Chain, known: Known, ledger: Ledger | None) -> _Hit:
        last = len(chain) - 1
        name = known.conversation or (self._new_id() if ledger is not None else "")
        entry = Entry(ledger=known.ledger if ledger is None else ledger, conversation=name, seen=known.seen)
        generation = known.generation + 1 if known.index == last else 0
        value = encode(entry, self._seal)
        self._decoded.put(value, entry, len(value) + entry.size)
        return _Hit(last, generation, entry, value)

    async def _settle(self, chain: Chain, hit: _Hit, known: Known, ledger: Ledger | None, mark: Mark | None) -> _Hit:
        """What stands after trying to write `hit`: itself, under the first generation that is free, or a winner."""
        while hit.generation < GENERATIONS:
            key = _key(chain[hit.index], hit.generation)
            there = (await self._store.add({key: hit.value}, self._ttl_s, mark)).get(key, hit.value)
            if there == hit.value:
                break
            winner = self._hit(hit.index, hit.generation, there)
            if winner is not None and _outranks(winner.entry, known, ledger):
                return winner
            hit, mark = replace(hit, generation=hit.generation + 1), None
        return hit


def chained(digests: Sequence[bytes], root: bytes, carry: Carry) -> Chain:
    """The digest of each prefix under `root`, those taken from `carry` that are there."""
    known = carry.get(("chain", root))
    chain = identity.chain(root, digests, known)
    carry.put(("chain", root), chain, DIGEST_MEMORY * (len(chain) - len(known)))
    return chain


def _outranks(winner: Entry, known: Known, ledger: Ledger | None) -> bool:
    """Whether an entry that was there first holds against a new one.

    A decision does. One that merely went on from what was known before, or from nothing, does not stop a decision.
    """
    return ledger is None or winner.ledger.decision not in ("", known.ledger.decision)


def _key(digest: bytes, generation: int) -> bytes:
    return digest + bytes([generation]) if generation else digest


def _generation(key: bytes) -> int:
    return key[DIGEST_BYTES] if len(key) > DIGEST_BYTES else 0


def _keys(digests: Sequence[bytes]) -> list[bytes]:
    """The keys of the first two generations of each prefix, in order."""
    return [key for digest in digests for key in (digest, digest + b"\x01")]
