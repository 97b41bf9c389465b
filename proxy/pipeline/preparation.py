"""Plans made ahead: while nobody waits, what the next cut of a conversation would take away.

Only for policies that do not look at the prompt, and from the threshold `warn` on. A plan stands under the digest of
the conversation with its reply, so it is found by whoever goes on from there and by nobody else; one that was made
under another ledger, or that would not do, is no worse than none.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

from policies.errors import PlanError
from policies.plan import Plan, apply, check
from policies.types import Context, Need, Policy, Window
from proxy.conversations.background import Background, Wanted
from proxy.conversations.identity import Chain, chain
from proxy.wire.canonical import digest
from proxy.wire.chat import Message
from proxy.wire.messages import digest as raw_digest
from proxy.wire.messages import read_message

LOOK = 64  # how many of a request's newest digests are looked up: more messages than a turn adds
MOST_BYTES = 8 * 2**20  # a larger request is not kept in memory for this

Making = Callable[[Message], Plan | None]
"""Makes the plan for the conversation with its reply; None where no cut is near."""


@dataclass(frozen=True, slots=True)
class _Made:
    plan: Plan
    decision: str


@dataclass(frozen=True, slots=True)
class Given:
    """A policy whose plan is there already."""

    made: Plan
    name: ClassVar[str] = "given"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """The plan that was given."""
        return self.made


@dataclass(slots=True)
class Rehearsal:
    """A policy that is asked ahead of time, leaves `spare` tokens for what is to come, and whose plan is kept."""

    policy: Policy
    spare: int = 0
    made: Plan | None = None
    name: ClassVar[str] = "rehearsal"

    @property
    def needs(self) -> frozenset[Need]:
        """What the policy itself needs."""
        return self.policy.needs

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """The policy's plan."""
        self.made = self.policy.plan(window, max(1, target - self.spare), context)
        return self.made


def serves(made: Plan, window: Window, target: int, context: Context) -> bool:
    """Whether a plan that was made ahead breaks no promise in this window and reaches the target."""
    try:
        check(made, window, context.count)
    except PlanError:
        return False
    return apply(made, window, context.count).used <= target


class Preparation:
    """Makes plans on `background`, and keeps the last `size` of them. Raises ValueError for a size below 1."""

    def __init__(self, background: Background, *, size: int = 1_000) -> None:
        if size < 1:
            raise ValueError(f"size: must be at least 1, got {size}")
        self._background = background
        self._size = size
        self._made: OrderedDict[bytes, _Made] = OrderedDict()
        self._waiting: OrderedDict[bytes, bytes] = OrderedDict()  # the last digest of a request, and that of its reply
        self._lock = Lock()

    def put(self, request: Chain, reply: Mapping[str, Any], decision: str, making: Making) -> None:
        """Make a plan for the conversation of `request` with its `reply`, under the ledger of `decision`."""
        (key,) = chain(request[-1], (digest(reply),))
        raw = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

        def work(wanted: Wanted) -> None:
            plan = making(read_message(raw, raw_digest(raw)))
            with self._lock:
                self._waiting.pop(request[-1], None)
                if plan is not None and wanted():
                    self._made[key] = _Made(plan, decision)
                    if len(self._made) > self._size:
                        self._made.popitem(last=False)

        with self._lock:
            self._waiting[request[-1]] = key
            if len(self._waiting) > self._size:
                self._waiting.popitem(last=False)
        self._background.put(key, work)

    def begin(self, request: Chain) -> None:
        """A turn begins: work for what it goes on from, or asks again, is thrown away."""
        with self._lock:
            found = [self._waiting.pop(digest) for digest in _newest(request) if digest in self._waiting]
        for key in found:
            self._background.discard(key)

    def take(self, request: Chain, decision: str) -> Plan | None:
        """The plan for the longest prefix that has one, if it was made under the ledger of `decision`."""
        with self._lock:
            made = next((self._made[digest] for digest in _newest(request) if digest in self._made), None)
        return made.plan if made is not None and made.decision == decision else None

    def close(self) -> None:
        """Throw away what waits."""
        self._background.close()


def _newest(request: Chain) -> Sequence[bytes]:
    return request[: -LOOK - 1 : -1]
