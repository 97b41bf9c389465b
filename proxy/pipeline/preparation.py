"""What the next cut of a conversation will need, made while nobody waits: its plan, or the parts of one.

Plans are for policies that do not look at the prompt. A plan stands under the digest of the conversation with its
reply, so it is found by whoever goes on from there and by nobody else; one that was made under another ledger, or that
would not do, is no worse than none. Clusters stand there as well; they speak of slots, so they hold whatever was
decided since.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, ClassVar

from policies.errors import PlanError
from policies.plan import Plan, Summarize, apply, check
from policies.turns import INSTRUCTIONS
from policies.types import Clusterer, Context, Need, Policy, Slot, Window
from proxy.conversations.background import Background, Wanted
from proxy.conversations.identity import Chain, chain
from proxy.memories import Memories
from proxy.wire.canonical import digest
from proxy.wire.chat import Message
from proxy.wire.memo import Memo
from proxy.wire.messages import digest as raw_digest
from proxy.wire.messages import read_message

LOOK = 64  # how many of a request's newest digests are looked up: more messages than a turn adds
MOST_BYTES = 8 * 2**20  # a larger request is not kept in memory for this
_SLOT_BYTES = 120  # of an entry of clusters by slot
_ACTION_BYTES = 300  # of an action of a plan, its reason apart


@dataclass(frozen=True, slots=True)
class _Made:
    plan: Plan
    decision: str

    @property
    def size(self) -> int:
        """Bytes that the plan takes."""
        slots = sum(len(each.slots) for each in self.plan.actions if isinstance(each, Summarize))
        return _SLOT_BYTES * slots + sum(_ACTION_BYTES + len(each.reason) for each in self.plan.actions)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The cluster of each slot by its id, and how many slots there were when they were last made anew."""

    by_slot: Mapping[str, int]
    slots: int


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


@dataclass(slots=True)
class Clustering:
    """A policy that is asked for the clusters of a window alone, which are kept; it evicts nothing.

    They are of all slots but instructions, as if another prompt had come: what is pinned or protected now may go then.
    """

    policy: Clusterer
    made: Mapping[str, int] = field(default_factory=dict)
    slots: int = 0
    name: ClassVar[str] = "clustering"

    @property
    def needs(self) -> frozenset[Need]:
        """What the policy itself needs."""
        return self.policy.needs

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """No plan."""
        free = [
            slot if slot.evictable or slot.role in INSTRUCTIONS else replace(slot, pinned=False, protected=False)
            for slot in window.slots
        ]
        prompt = Slot(id="next", role="user", text="", tokens=0, turn=len(free), pinned=True)
        later = replace(window, slots=(*free, prompt))
        self.made, self.slots = self.policy.clusters(later, target, context), len(free)
        return Plan(self.name)


def serves(made: Plan, window: Window, target: int, context: Context) -> bool:
    """Whether a plan that was made ahead breaks no promise in this window and reaches the target."""
    try:
        check(made, window, context.count)
    except PlanError:
        return False
    return apply(made, window, context.count).used <= target


class Job:
    """What is being prepared for one conversation, as long as it is `wanted`."""

    def __init__(self, preparation: "Preparation", request: bytes, key: bytes, size: int = 0) -> None:
        self._preparation = preparation
        self._request = request
        self._key = key
        self._size = size

    @property
    def wanted(self) -> bool:
        """Whether the conversation has not moved on."""
        return self._preparation.waits(self._request, self._key)

    def plan(self, made: Plan, decision: str) -> None:
        """Keep a plan that was made under the ledger of `decision`."""
        self._preparation.keep_plan(self._request, self._key, made, decision)

    def clusters(self, made: Clusters) -> None:
        """Keep clusters."""
        self._preparation.keep_clusters(self._request, self._key, made)

    def later(self, work: Callable[[], None]) -> Callable[[], None]:
        """What goes on with the work, from any thread; it does nothing where the conversation has moved on.

        Until then the work is kept as work that waits is: within bounds.
        """
        return self._preparation.later(self._request, self._key, work, self._size)


Preparing = Callable[[Message | None, Job], None]
"""Prepares for what follows a reply, None where there is no whole one."""


class Preparation:
    """Prepares on `background`, and keeps plans of `plan_bytes` and clusters of `cluster_bytes`.

    At most `size` conversations are prepared for at a time. Without `plans` there are parts alone. Raises ValueError
    for a size below 1.
    """

    def __init__(
        self,
        background: Background,
        *,
        size: int = 1_000,
        plans: bool = True,
        plan_bytes: int = 16 * 2**20,
        cluster_bytes: int = 16 * 2**20,
    ) -> None:
        if size < 1:
            raise ValueError(f"size: must be at least 1, got {size}")
        self.plans = plans
        self._made = Memo[_Made](plan_bytes)
        self._clusters = Memo[Clusters](cluster_bytes)
        self._background = background
        self._size = size
        self._waiting: OrderedDict[bytes, bytes] = OrderedDict()  # the last digest of a request, and that of its reply
        self._lock = Lock()

    @property
    def memories(self) -> Memories:
        """What it remembers, by kind."""
        return {"plans": self._made.held, "clusters": self._clusters.held, "background": self._background.held}

    def put(self, request: Chain, reply: Mapping[str, Any] | None, preparing: Preparing, size: int = 0) -> None:
        """Prepare for what follows `request` and its `reply`; `size` bytes are kept in memory for that."""
        key, raw = request[-1], b""
        if reply is not None:
            (key,) = chain(request[-1], (digest(reply),))
            raw = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        size += len(raw)

        def work(wanted: Wanted) -> None:
            preparing(read_message(raw, raw_digest(raw)) if raw else None, Job(self, request[-1], key, size))

        with self._lock:
            self._waiting[request[-1]] = key
            self._waiting.move_to_end(request[-1])
            if len(self._waiting) > self._size:
                self._waiting.popitem(last=False)
        self._background.put(key, work, size)

    def begin(self, request: Chain) -> None:
        """A turn begins: work for what it goes on from, or asks again, is thrown away."""
        with self._lock:
            found = [self._waiting.pop(digest) for digest in _newest(request) if digest in self._waiting]
        for key in found:
            self._background.discard(key)

    def take(self, request: Chain, decision: str) -> Plan | None:
        """The plan for the longest prefix that has one, if it was made under the ledger of `decision`."""
        made = next((found for digest in _newest(request) if (found := self._made.get(digest)) is not None), None)
        return made.plan if made is not None and made.decision == decision else None

    def clusters(self, request: Chain) -> Clusters | None:
        """The clusters of the longest prefix that has any."""
        return next((found for digest in _newest(request) if (found := self._clusters.get(digest)) is not None), None)

    def waits(self, request: bytes, key: bytes) -> bool:
        """Whether what follows a request is still to be prepared for."""
        with self._lock:
            return self._waiting.get(request) == key

    def keep_plan(self, request: bytes, key: bytes, plan: Plan, decision: str) -> None:
        """Keep a plan under `key`, unless the conversation has moved on."""
        if self.waits(request, key):
            made = _Made(plan, decision)
            self._made.put(key, made, made.size)

    def keep_clusters(self, request: bytes, key: bytes, made: Clusters) -> None:
        """Keep clusters under `key`, unless the conversation has moved on."""
        if self.waits(request, key):
            self._clusters.put(key, made, _SLOT_BYTES * len(made.by_slot))

    def later(self, request: bytes, key: bytes, work: Callable[[], None], size: int = 0) -> Callable[[], None]:
        """What does more for a conversation in the background, unless it has moved on; it keeps no work itself."""
        if not self.waits(request, key):
            return lambda: None
        self._background.park(key, lambda wanted: work(), size)
        return partial(self._background.resume, key)

    def close(self) -> None:
        """Throw away what waits."""
        self._background.close()


def _newest(request: Chain) -> Sequence[bytes]:
    return request[: -LOOK - 1 : -1]
