"""How many texts an embedder is handed at a time: what it can do before somebody stops waiting. (pure)"""

from collections import OrderedDict
from collections.abc import Collection
from itertools import islice

from proxy.embeddings.waiting import Texts

BATCH_TEXTS, BATCH_CHARACTERS = 16, 32_768
SLICE_S = 0.05  # what comes in between waits no longer than for a batch of this
LOOK = 64  # texts, the newest first, among which those are sought that fit
ALIKE = 2.0  # times as long as its shortest text is the longest of a batch: a model pads them all to the longest


class Pace:
    """What a call takes and what each character adds, in seconds, by the last calls.

    A least-squares line through what was measured, each call counting for less with every one that follows. What
    nobody has measured yet is guessed.
    """

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        for characters, seconds in _GUESS:
            self._add(characters, seconds, _GUESSED)

    def learn(self, characters: int, seconds: float) -> None:
        """Take in what a call with so many characters took."""
        self._n, self._x, self._y = self._n * _FADE, self._x * _FADE, self._y * _FADE
        self._xx, self._xy = self._xx * _FADE, self._xy * _FADE
        self._add(characters, seconds, 1.0)

    @property
    def call_s(self) -> float:
        """Seconds that a call takes beside its characters."""
        return max(0.0, (self._y - self.character_s * self._x) / self._n)

    @property
    def character_s(self) -> float:
        """Seconds that each character adds, never 0."""
        through_origin = self._xy / self._xx if self._xx else 0.0
        spread = self._n * self._xx - self._x**2
        if spread <= _LEAST_SPREAD * self._x**2:
            return max(through_origin, 1e-9)
        # No call takes less than nothing: of lines that say so, the nearest that does not.
        slope = min((self._n * self._xy - self._x * self._y) / spread, through_origin)
        return max(slope, 1e-9)

    def seconds(self, characters: int) -> float:
        """What a call with so many characters will take."""
        return self.call_s + characters * self.character_s

    def _add(self, characters: float, seconds: float, weight: float) -> None:
        self._n += weight
        self._x += weight * characters
        self._y += weight * seconds
        self._xx += weight * characters**2
        self._xy += weight * characters * seconds


_FADE = 0.9
_GUESS, _GUESSED = ((0, 0.005), (2000, 0.2)), 0.1  # a small model on one processor
_LEAST_SPREAD = 1e-3  # of sizes, below which they tell nothing of what a character costs
_MARGIN = 1.25  # a call may take longer than the last ones did


def batch(
    waiting: OrderedDict[bytes, str] | Texts, pace: Pace, left_s: float | None, alone: Collection[bytes]
) -> list[bytes]:
    """The keys of the next texts out of those that are `waiting`, the newest last: none where none would be in time.

    `left_s` are the seconds after which nobody waits for them any more, None where nobody does. Those that are to
    come `alone` come before all others. The rest go by age, a text being passed over that takes too long or whose
    length is not like that of the others.
    """
    call, each = pace.call_s, pace.character_s
    first = next((key for key in alone if key in waiting), None)
    if first is not None and (left_s is None or _MARGIN * pace.seconds(len(waiting[first])) <= left_s):
        return [first]
    quick = max(SLICE_S, call)
    if left_s is not None:
        quick = min(left_s / _MARGIN - call, max(quick, left_s / 3))
    room = min(quick / each, BATCH_CHARACTERS)
    chosen: list[bytes] = []
    shortest = longest = 0
    for key in islice(reversed(waiting), LOOK):
        size = len(waiting[key])
        if not chosen and left_s is None:
            room = max(room, size)  # one has to be made some time
        if size > room or len(chosen) >= BATCH_TEXTS:
            continue
        if chosen and (size > ALIKE * shortest or longest > ALIKE * size):
            continue
        chosen.append(key)
        shortest, longest = min(size, shortest or size), max(size, longest)
        room -= size
    return chosen
