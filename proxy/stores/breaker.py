"""When to stop asking a store that does not answer, and when to ask it again. (pure)

closed ──`trip_after` failures in a row──▶ open ──a trial that works──▶ closed
                                          │  ▲
                                          └──┘ a trial that fails: the next one waits twice as long
"""

import math
import random
from collections.abc import Callable


class Breaker:
    """Open while the store is given a rest. Waits are seconds, from `first_s` doubling up to `longest_s`.

    Each wait is cut by a random share of up to half, so that many workers do not come back at the same moment.
    None is long: while some workers are back and others are not, conversations that go from one to another lose what
    was decided on the way.
    Raises ValueError for a `trip_after` below 1.
    """

    def __init__(
        self,
        *,
        trip_after: int = 3,
        first_s: float = 0.5,
        longest_s: float = 5.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if trip_after < 1:
            raise ValueError(f"trip_after: must be at least 1, got {trip_after}")
        self._trip_after = trip_after
        self._first_s = first_s
        self._longest_s = longest_s
        self._chance = chance
        self._failures = 0
        self._trials = 0
        self._counted = -math.inf
        self.open = False

    def succeeded(self) -> None:
        """A call worked; while open that changes nothing, for it may have been sent long before."""
        if not self.open:
            self._failures = 0

    def failed(self, started: float, now: float) -> bool:
        """A call that was `started` (seconds on any clock) failed `now`; whether that opened the breaker."""
        if self.open or started < self._counted:
            return False
        self._failures += 1
        self._counted = now
        if self._failures < self._trip_after:
            return False
        self.open = True
        return True

    def trip(self) -> None:
        """Open at once, whatever was counted."""
        self.open = True

    def trial_failed(self) -> None:
        """The store was asked again, in vain."""
        self._trials += 1

    def reset(self) -> None:
        """The store is well again."""
        self.open = False
        self._failures = self._trials = 0

    def wait_s(self) -> float:
        """How long to wait before the next trial."""
        longest = min(self._longest_s, self._first_s * 2.0 ** min(self._trials, 60))
        return longest * (1 - self._chance() / 2)
