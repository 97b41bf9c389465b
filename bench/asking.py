"""Questions asked at the end of a conversation that was sent turn by turn, so that every cut was made before them."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bench.cache import defaults
from bench.data import Conversation, prefixes
from bench.facts import Probe
from bench.supply import State, Supply
from bench.ways import Sent, verbatim
from policies.fifo import Fifo
from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.types import Context, Need, Slot, Window
from proxy import wire
from proxy.conversations import Conversations
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.route import Mode, Route
from proxy.stores.memory import MemoryStore
from proxy.wire.memo import Memo

_READ = Memo[Any]()


@dataclass(frozen=True, slots=True)
class Tail:
    """Keeps the newest; what it dropped comes back for the prompt as it does for policies that look at it."""

    name: ClassVar[str] = "tail"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SIMILARITY})

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Oldest first."""
        return Fifo().plan(window, target, context)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Knows from the start which messages will be asked for, and keeps them as long as it can."""

    evidence: frozenset[int] = frozenset()
    name: ClassVar[str] = "oracle"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SIMILARITY})

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """The rest, oldest first, down to the target; what is asked for only where the budget has no room for it."""
        guarded = [replace(slot, protected=True) if self._wants(slot) else slot for slot in window.slots]
        rest = evict_lowest(replace(window, slots=tuple(guarded)), target, lambda slot: 0.0, "oldest first")
        gone = {each.slot for each in rest}
        left = tuple(slot for slot in window.slots if slot.id not in gone)
        used = window.used - sum(slot.tokens for slot in window.slots if slot.id in gone)
        last = evict_lowest(replace(window, slots=left, used=used), window.budget, lambda slot: 0.0, "no room for it")
        return Plan(self.name, (*rest, *last))

    def _wants(self, slot: Slot) -> bool:
        if not slot.id.startswith("m"):  # a note
            return False
        first = int(slot.id[1:])
        return not self.evidence.isdisjoint(range(first, first + 1 + slot.results))


def route(name: str, settings: str) -> Route:
    """The route by default, with `settings` changed, under the way called `name`: a policy, or one to compare with.

    `identity` sends all, `newest` what is newest, `tail` that and what comes back, `oracle` what will be asked for.

    Raises:
        ConfigError: they are no settings of a route, or no policy has that name.
    """
    if name == "identity":
        return replace(defaults(settings), mode=Mode.OFF)
    if name == "newest":
        return replace(defaults(settings), policy=Fifo(), keep_prefix=0.0, recall_budget=0.0)
    if name == "tail":
        return replace(defaults(settings), policy=Tail(), keep_prefix=0.0)
    if name == "oracle":
        return replace(defaults(settings), policy=Oracle(), keep_prefix=0.0)
    return defaults(", ".join(each for each in (f"policy: {name}", settings) if each))


def way(route: Route, wanted: Sequence[Probe]) -> Route:
    """The route for a conversation: an oracle is told what will be asked."""
    if not isinstance(route.policy, Oracle):
        return route
    facts = (fact for probe in wanted for fact in probe.facts)
    return replace(route, policy=Oracle(frozenset().union(*facts)))


@dataclass(frozen=True, slots=True)
class Asked:
    """What was sent for each question, and the seconds that the pipeline took for every request, questions included."""

    sent: list[Sent]
    seconds: list[float]


async def asked(
    conversation: Conversation,
    wanted: Sequence[Probe],
    route: Route,
    window: int,
    supply: Supply | None = None,
) -> Asked:
    """Send a conversation turn by turn, then each question, a branch of it each, with a window of `window` tokens.

    Where vectors are cold, a question comes to a worker that has just been started.
    """
    supply = supply or Supply(None)
    supply.renew()
    store = Conversations(MemoryStore(), salt=b"bench", ttl_s=3600.0)
    pipeline = Pipeline(lambda _route, _model: window, store, embeddings=supply.embeddings, wait_s=supply.wait_s)
    seconds: list[float] = []

    async def send(body: bytes) -> Outcome:
        start = time.perf_counter()
        outcome = await pipeline.run(Incoming(route=route, body=body, reserve=0))
        seconds.append(time.perf_counter() - start)
        if outcome.turn is not None:
            await outcome.turn.end()
        if outcome.after is not None:
            outcome.after()
        return outcome

    try:
        for request in prefixes(conversation):
            await send(json.dumps(request).encode())
        found = []
        for probe in wanted:
            body = json.dumps(probe.request).encode()
            if supply.state is State.COLD:
                supply.renew()
            outcome = await send(body)
            kept = verbatim(wire.parse(body, _READ).messages, outcome.body)
            tokens, bounded = outcome.tokens_after or window, route.mode is not Mode.OFF
            found.append(Sent(kept, tokens, seconds[-1], outcome.body, bounded=bounded))
        return Asked(found, seconds)
    finally:
        await store.close()
