"""What calibrations know, in a store: for the next start and for other workers, by class of text and by conversation.

Numbers under digests, without a word of any message. A store's values are never changed, so what is known of a model
is written in steps: once it has seen 1, 2, 4 … 64 requests, and then with the first of every hour. Of those that are
there, the one that has seen most counts.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b

from proxy.stores.contract import Store, StoreError
from proxy.tokens.calibration_codec import decode_past, encode_past
from proxy.upstream.expiring import Expiring
from proxy.upstream.learned import Calibrations, Key

LOOK = 64  # of the newest prefixes of a conversation, those that are asked for
STEPS = tuple(2**n for n in range(7))
HOUR_S = 3600.0
HOURS = 24  # at most, that are looked back
UNDER_WAY = 200  # writes at once; what comes on top is left out, and the next request brings it again


class Lasting:
    """Takes over what `store` keeps of calibrations, and writes down what they learn. A store that fails costs nothing.

    Without a `store` they last as long as this worker. `salt` goes into every key; `ttl_s` is how long values live, in
    seconds. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        calibrations: Calibrations,
        store: Store | None = None,
        *,
        salt: bytes = b"",
        ttl_s: float = 86_400.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.calibrations = calibrations
        self._store = store
        self._salt = salt
        self._ttl_s = ttl_s
        self._clock = clock
        self._asked: Expiring[Key, bool] = Expiring(capacity=1_000, ttl_s=ttl_s, clock=clock)
        self._looked: Expiring[tuple[Key, bytes], bool] = Expiring(capacity=10_000, ttl_s=ttl_s, clock=clock)
        self._hours: Expiring[Key, int] = Expiring(capacity=1_000, ttl_s=ttl_s, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()

    async def recall(self, key: Key, chain: Sequence[bytes] = (), opening: bytes | None = None) -> None:
        """Take over what is kept of `key` and of the conversation whose prefixes have these digests, oldest first.

        `opening` is the digest up to its first answer; one without an answer has no past. One round trip, and none
        where this worker knows both or has asked before.
        """
        if self._store is None:
            return
        models = [] if self._asked.get(key) else self._models(key)
        known = opening is None or self._looked.get((key, opening)) or self.calibrations.past(key, chain) is not None
        newest = [] if known else list(reversed(chain[-LOOK:]))
        if not models and not newest:
            return
        try:
            found = await self._store.look([*models, *(self._past(key, digest) for digest in newest)])
        except StoreError:
            return
        for value in found.values[: len(models)]:
            if value is not None:
                self.calibrations.load(key, value)
        if models:
            self._asked.put(key, True)
        if newest and opening is not None:
            self._looked.put((key, opening), True)
        for digest, value in zip(newest, found.values[len(models) :], strict=True):
            if value is not None and (past := decode_past(value)) is not None:
                self.calibrations.remember(key, digest, past)
                return

    def write(self, key: Key, digest: bytes) -> None:
        """Write down, in a task of its own, what was learned of `key` from the request with this last digest."""
        if self._store is None or len(self._tasks) >= UNDER_WAY or not (items := self._news(key, digest)):
            return
        task = asyncio.get_running_loop().create_task(self._add(self._store, items), name="trimtab-calibration")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for what is being written."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _add(self, store: Store, items: Mapping[bytes, bytes]) -> None:
        with suppress(StoreError):
            await store.add(items, self._ttl_s)

    def _news(self, key: Key, digest: bytes) -> Mapping[bytes, bytes]:
        items: dict[bytes, bytes] = {}
        if (past := self.calibrations.past(key, (digest,))) is not None:
            items[self._past(key, digest)] = encode_past(past)
        seen = self.calibrations.seen(key)
        hour = int(self._clock() // HOUR_S)
        due = b""
        if seen in STEPS:
            due = b"step %d" % seen
        elif seen > STEPS[-1] and self._hours.get(key) != hour:
            self._hours.put(key, hour)
            due = b"hour %d" % hour
        if due and (data := self.calibrations.dump(key)) is not None:
            items[self._key(b"model", key, due)] = data
        return items

    def _models(self, key: Key) -> list[bytes]:
        now = int(self._clock() // HOUR_S)
        back = min(HOURS, int(self._ttl_s // HOUR_S) + 1)
        names = [b"step %d" % seen for seen in STEPS] + [b"hour %d" % hour for hour in range(now - back, now + 1)]
        return [self._key(b"model", key, name) for name in names]

    def _past(self, key: Key, digest: bytes) -> bytes:
        return self._key(b"past", key, digest)

    def _key(self, kind: bytes, key: Key, name: bytes) -> bytes:
        made = blake2b(key=self._salt[:64], digest_size=32, person=b"trimtab learned")
        for part in (kind, key.route.encode("utf-8", "surrogatepass"), key.model.encode("utf-8", "surrogatepass")):
            made.update(b"%d:%b" % (len(part), part))
        credential = b"-" if key.credential is None else key.credential.encode()
        made.update(b"%d:%b%b" % (len(credential), credential, name))
        return made.digest()
