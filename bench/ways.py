"""Ways to bring a request down to a budget, each by name: bounds to compare with, rankings, and the policies."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.supply import State, Supply
from bench.vectors import DiskVectors
from bench.views import View, bench_route
from policies import registry
from proxy import wire
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.route import Targets, Thresholds
from proxy.wire.chat import Message
from proxy.wire.grouping import INSTRUCTIONS
from proxy.wire.memo import Memo


@dataclass(frozen=True, slots=True)
class Sent:
    """What is sent: the client's messages that are in it verbatim, by index, its size in tokens, and its body.

    `seconds` is what the pipeline took for it; bounds and rankings have neither that nor a body. It was to be brought
    down to a budget unless it is not `bounded`.
    """

    kept: frozenset[int]
    tokens: int
    seconds: float = 0.0
    body: bytes = b""
    bounded: bool = True

    @property
    def said(self) -> str:
        """What was sent in words, instructions apart: of messages that were cut, what is left."""
        messages = wire.parse(self.body, _READ).messages if self.body else ()
        return "\n".join(message.text for message in messages if message.role not in INSTRUCTIONS)


Way = Callable[[View, Sequence[int]], list[Sent]]
"""Brings a view's request down to each of some targets in tokens, or as near as pins and protection allow."""


def ways(names: Iterable[str], vectors: DiskVectors | None, state: State = State.WAITED) -> dict[str, Way]:
    """The ways called `names`, policies with vectors in that state.

    Raises PolicyError for a name that is neither one of `OWN` nor a policy's.
    """
    own: dict[str, Way] = {
        "identity": _identity,
        "tail": _tail,
        "oracle": _oracle,
        "lexical": lambda view, targets: _fill(view, targets, view.relevance(None)),
        "relevance": lambda view, targets: _fill(view, targets, view.relevance(vectors)),
    }
    return {name: own.get(name) or _policy(name, vectors, state) for name in names}


_READ = Memo[Any]()

OWN = ("identity", "tail", "oracle", "lexical", "relevance")


def _identity(view: View, targets: Sequence[int]) -> list[Sent]:
    """All of it, whatever the budget."""
    everything = frozenset(index for messages in view.messages for index in messages)
    return [Sent(everything, view.window.used, bounded=False)] * len(targets)


def _take(view: View, target: int, order: Iterable[int]) -> Sent:
    """What has to be sent, and of the rest, in this order, what still fits.

    Protected slots are part of the rest: they can be cut, but then they are not sent verbatim.
    """
    bounds = view.bounds(target)
    slots = bounds.window.slots
    kept = {i for i, slot in enumerate(slots) if slot.pinned}
    used = bounds.least
    for i in order:
        cost = bounds.cut[slots[i].id] if slots[i].protected else slots[i].tokens
        if i not in kept and used + cost <= target:
            kept.add(i)
            used += cost
    return Sent(frozenset(index for i in kept for index in view.messages[i]), used)


def _protected(view: View, target: int) -> list[int]:
    """The protected slots, newest first."""
    return [i for i, slot in reversed([*enumerate(view.bounds(target).window.slots)]) if slot.protected]


def _tail(view: View, targets: Sequence[int]) -> list[Sent]:
    """The instructions, and the newest without a gap: what most clients do. It may lose the task."""
    return [_newest(view, target) for target in targets]


def _newest(view: View, target: int) -> Sent:
    slots = view.window.slots
    kept = {i for i, slot in enumerate(slots) if slot.role in INSTRUCTIONS}
    used = view.window.overhead + sum(slots[i].tokens for i in kept)
    for i in reversed(range(len(slots))):
        if i in kept:
            continue
        if used + slots[i].tokens > target:
            break
        kept.add(i)
        used += slots[i].tokens
    return Sent(frozenset(index for i in kept for index in view.messages[i]), used)


def _oracle(view: View, targets: Sequence[int]) -> list[Sent]:
    """Knows the evidence, and takes of each fact the smallest slot that states it: all that pins and budget allow."""
    slots = view.window.slots
    owner = {index: i for i, messages in enumerate(view.messages) for index in messages}
    smallest = {min((owner[index] for index in fact), key=lambda i: slots[i].tokens) for fact in view.probe.facts}
    order = sorted(smallest, key=lambda i: slots[i].tokens)
    return [_take(view, target, [*order, *_protected(view, target)]) for target in targets]


def _fill(view: View, targets: Sequence[int], scores: NDArray[np.float64]) -> list[Sent]:
    """The most relevant slots that fit."""
    order = [int(i) for i in np.argsort(-scores, kind="stable")]
    return [_take(view, target, [*_protected(view, target), *order]) for target in targets]


def _policy(name: str, vectors: DiskVectors | None, state: State) -> Way:
    """A policy as the proxy runs it, recall and overflow included; without a past, the target its only threshold."""
    policy = registry.create(name)
    route = bench_route(
        policy,
        thresholds=Thresholds(warn=1e-9, evict=1e-9, emergency=1e9),
        targets=Targets(evict=1.0, emergency=1.0),
        breathing_turns=0,
    )

    size = [0]  # the window of the request at hand
    supply = Supply(vectors, state)
    pipeline = Pipeline(lambda _route, _model: size[0], embeddings=supply.embeddings, wait_s=supply.wait_s)

    def cut(view: View, target: int) -> Sent:
        start = time.perf_counter()
        outcome = pipeline.settle(Incoming(route=route, body=view.body, reserve=0, budget=target))
        seconds = time.perf_counter() - start + supply.spared_s
        tokens = outcome.tokens_after or view.window.used
        return Sent(verbatim(view.said, outcome.body), tokens, seconds, outcome.body)

    def run(view: View, targets: Sequence[int]) -> list[Sent]:
        size[0] = view.window.used
        supply.renew(view.history)
        found = []
        for target in targets:
            found.append(cut(view, target))
            supply.repeat()  # what is there in time has nothing to do with the target
        return found

    return run


def verbatim(client: Sequence[Message], sent: bytes) -> frozenset[int]:
    """The client's messages, by index, whose words are all in what was sent: as they stood, or quoted in a note."""
    left = wire.parse(sent, _READ).messages
    whole = {message.digest for message in left}
    known = {message.digest for message in client}
    notes = "\n".join(m.text for m in left if m.digest not in known)
    return frozenset(i for i, m in enumerate(client) if m.digest in whole or (notes and m.text and m.text in notes))
