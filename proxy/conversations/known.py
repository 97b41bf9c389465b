"""What is remembered of a conversation, what a request finds of it, and what a turn in flight makes of that. (pure)"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Literal, NamedTuple

from proxy.conversations.ledger import Ledger

MAX_RUNS = 64
"""How many times a conversation keeps: beyond that the older half forgets every second one."""

_AROUND = 700  # bytes of an entry that holds nothing
_RUN = 140  # and of each run of times
_NOTE = 400
_COVERED = 40
_QUOTE = 180
_HELD = 140  # of an index in a set or a mapping


class Seen(NamedTuple):
    """The messages from index `first` on, up to the next run, were first seen at unix time `at`, in seconds."""

    first: int
    at: int


Runs = tuple[Seen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What stands under the digest of a prefix: the ledger in force for it, and when its messages were first seen.

    `conversation` is a random name given at the first decision and inherited from then on, by branches too; empty
    before. A request that decides nothing has an entry as well: the ledger it replayed, or an empty one.
    """

    ledger: Ledger
    conversation: str = ""
    seen: Runs = ()

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, an upper bound."""
        ledger = self.ledger
        held = len(ledger.drops) + len(ledger.clears) + 3 * len(ledger.truncations)
        notes = sum(_NOTE + _COVERED * len(note.covers) + _QUOTE * len(note.quotes) for note in ledger.notes)
        return _AROUND + _RUN * len(self.seen) + _HELD * held + notes


class Status(StrEnum):
    """What became of a conversation's ledger, as the audit says it."""

    NONE = "none"  # nothing was ever decided
    REPLAYED = "replayed"
    MISSING = "missing"  # the store did not answer, and this worker does not know the conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a request finds: the entry of its longest prefix that has one.

    `index` is the last message of that prefix (-1: none) and `generation` counts what was decided for that very
    prefix before. `seen` covers all messages of the request, those first seen with it included. `turns` are the
    digests, newest first, under which turns are in flight that this request goes on beyond. `store_failed`: the
    store did not answer, so a newer entry and turns elsewhere may have been missed.
    """

    status: Status = Status.NONE
    entry: Entry | None = None
    index: int = -1
    generation: int = -1
    seen: Runs = ()
    turns: tuple[bytes, ...] = ()
    store_failed: bool = False

    @property
    def ledger(self) -> Ledger:
        """The ledger to replay; an empty one where there is none."""
        return self.entry.ledger if self.entry is not None else Ledger()

    @property
    def conversation(self) -> str:
        """The conversation's name, empty before its first decision."""
        return self.entry.conversation if self.entry is not None else ""

    def first_seen(self, index: int) -> float | None:
        """When message `index` was first seen, in seconds since the epoch; None before the first run.

        Messages of old turns may be given the time of an earlier one (see MAX_RUNS).
        """
        run = bisect_right(self.seen, (index, inf)) - 1
        return float(self.seen[run].at) if run >= 0 else None


Move = Literal["free", "held", "wait", "alone"]


def hold(turns: Sequence[bytes], *, fits: bool, waited: bool) -> Move:
    """What a request may do while `turns` that it goes on beyond are in flight.

    `fits`: with the ledger replayed, the prompt is within its budget; `waited`: the route's time to wait is used up.

    - free: no turn is in flight; decide as the thresholds say, and commit
    - held: replay what is committed and go at once; no new decision, no recall, no background work
    - wait: for the turns to end, then replay anew
    - alone: cut for this request only, from the committed ledger, and do not commit the cut

    A request that is held or alone still begins a turn of its own, under the committed ledger.
    """
    if not turns:
        return "free"
    if fits:
        return "held"
    return "alone" if waited else "wait"


def extend(runs: Runs, first: int, length: int, now: float) -> Runs:
    """The runs of a request of `length` messages of which those from `first` on are new, first seen at `now`.

    Clocks of workers differ: time never runs backwards along a conversation.
    """
    if first >= length:
        return runs
    at = max(int(now), runs[-1].at) if runs else int(now)
    if runs and runs[-1].at == at:
        return runs
    return _thin((*runs, Seen(first, at)))


def _thin(runs: Runs) -> Runs:
    if len(runs) <= MAX_RUNS:
        return runs
    half = len(runs) // 2
    return runs[:half:2] + runs[half:]
