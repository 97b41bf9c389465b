"""What upstreams have shown of their models: windows from their refusals, ratios from their usage.

Both are kept apart by route, model and credential, since a limit may be an account's own and nobody may teach another
one's proxy anything; both are bounded and go out of date. Not for use from several threads.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.tokens.calibration import Calibration, Past, start
from proxy.tokens.calibration_codec import decode, encode
from proxy.tokens.counts import Counts
from proxy.tokens.ratios import Ratios
from proxy.upstream.expiring import Expiring

SMALLEST, LARGEST = 256, 100_000_000  # tokens; a limit outside of this is taken for a mistake
ALIKE = 0.1  # two prompts whose sizes differ by less than this share may have met the same window


class Key(NamedTuple):
    """Whose knowledge it is; `credential` is a fingerprint, None for requests without one."""

    route: str
    model: str
    credential: str | None


def learned_key(route: str, model: str | None, tenant: bytes) -> Key:
    """The key of a request; a tenant that is empty is one of nobody's."""
    return Key(route, model or "", tenant.hex() or None)


class Learned:
    """Windows as upstreams enforced them, each for `ttl_s`, of at most `capacity` keys.

    A learned limit only ever makes a window smaller: an upstream that refuses knows best, but what it says can be
    an error of its own, and trimming too little is put right by its next refusal. So a limit is not learned over which
    the same upstream took a prompt in that time: behind one name there may be several windows, or the figure is none.
    """

    def __init__(
        self, *, capacity: int = 1_000, ttl_s: float = 3600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits: Expiring[Key, int] = Expiring(capacity=capacity, ttl_s=ttl_s, clock=clock)
        self._cuts: Expiring[Key, int] = Expiring(capacity=capacity, ttl_s=ttl_s, clock=clock)
        self._accepted: Expiring[Key, int] = Expiring(capacity=capacity, ttl_s=ttl_s, clock=clock)

    def __len__(self) -> int:
        return len(self._limits)

    def window(self, key: Key, known: int | None = None) -> int | None:
        """The smaller of the window that is `known` otherwise and the one learned; None if neither is there."""
        learned = self._limits.get(key)
        return known if learned is None else learned if known is None else min(known, learned)

    def note(self, key: Key, limit: int) -> bool:
        """Learn the limit, in tokens, that an error named; the latest counts. False if it can be no window."""
        if not SMALLEST <= limit <= LARGEST or limit < (1 - ALIKE) * (self._accepted.get(key) or 0):
            return False
        self._limits.put(key, limit)
        return True

    def note_truncated(self, key: Key, actual: int) -> bool:
        """Learn from a prompt of which the upstream silently took only `actual` tokens; True if that is a window now.

        Two such prompts of nearly one size make a window, of the larger: one alone may have shrunk for another reason
        (a template drops past reasoning), and those would not agree.
        """
        before = self._cuts.get(key)
        self._cuts.put(key, actual)
        if before is None or abs(before - actual) > ALIKE * max(before, actual):
            return False
        return self.note(key, max(before, actual))

    def note_accepted(self, key: Key, actual: int) -> None:
        """Forget a limit that a whole prompt of `actual` tokens went over: it is not true, or no longer.

        `actual` is the upstream's own count.
        """
        if (self._accepted.get(key) or SMALLEST) <= actual <= LARGEST:
            self._accepted.put(key, actual)
        learned = self._limits.get(key)
        if learned is not None and actual > learned:
            self._limits.drop(key)
            self._cuts.drop(key)


class Calibrations:
    """A calibration of each key, and the last request of each conversation, each for `ttl_s` since its last answer.

    A conversation is found by the digests of its messages' prefixes, as its ledger is; `pasts` of them are kept.
    """

    def __init__(
        self,
        *,
        capacity: int = 1_000,
        pasts: int = 10_000,
        ttl_s: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known: Expiring[Key, Calibration] = Expiring(capacity=capacity, ttl_s=ttl_s, clock=clock)
        self._pasts: Expiring[tuple[Key, bytes], Past] = Expiring(capacity=pasts, ttl_s=ttl_s, clock=clock)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Key, prior: Ratios) -> Calibration:
        """What is known under `key`; if nothing is, what a family with these ratios begins with."""
        return self._known.get(key) or start(prior)

    def seen(self, key: Key) -> int:
        """How many requests the calibration of `key` has learned from."""
        known = self._known.get(key)
        return 0 if known is None else known.seen

    def past(self, key: Key, chain: Sequence[bytes]) -> Past | None:
        """The last answered request of a conversation whose prefixes have these digests, oldest first."""
        for digest in reversed(chain):
            if (past := self._pasts.get((key, digest))) is not None:
                return past
        return None

    def remember(self, key: Key, digest: bytes, past: Past) -> None:
        """Take over the last answered request of a conversation, of which `digest` is the whole request."""
        self._pasts.put((key, digest), past)

    def observe(
        self, key: Key, prior: Ratios, counts: Counts, actual: int, *, digest: bytes, past: Past | None = None
    ) -> bool:
        """Learn from a request that was answered with a usage of `actual` prompt tokens.

        `counts` are of what was sent, `digest` is of the client's whole request, and `past` what its estimate was made
        with. True if the upstream cut the prompt: then nothing is learned of it, and the conversation keeps its past.
        """
        known = self.get(key, prior)
        cut = known.truncated(counts, actual, past)
        self._known.put(key, known.observe(counts, actual, past))
        if not cut and 1 <= actual <= LARGEST:
            self._pasts.put((key, digest), Past(counts, actual))
        return cut

    def dump(self, key: Key) -> bytes | None:
        """What is known under `key` as bytes for a store."""
        known = self._known.get(key)
        return None if known is None else encode(known)

    def load(self, key: Key, data: bytes) -> bool:
        """Take over what a store kept of `key`, if it says more than what is known here; False if it does not."""
        stored = decode(data)
        known = self._known.get(key)
        if stored is None or (known is not None and known.seen >= stored.seen):
            return False
        self._known.put(key, stored)
        return True
