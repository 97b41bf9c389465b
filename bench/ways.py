"""Ways to bring a request down to a budget, each by name: bounds to compare with, rankings, and the policies."""

import asyncio
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
from proxy.pipeline.gathering import last_user
from proxy.pipeline.intake import Incoming
from proxy.route import Route, Targets, Thresholds
from proxy.wire.memo import Memo


@dataclass(frozen=True, slots=True)
class Sent:
    """What is sent: the client's messages that are in it verbatim, by index, its size in tokens, and its body.

    `seconds` is what the pipeline took for it; bounds and rankings have neither that nor a body.
    """

    kept: frozenset[int]
    tokens: int
    seconds: float = 0.0
    body: bytes = b""


Way = Callable[[View, Sequence[int]], list[Sent]]
"""Brings a view's request down to each of some targets in tokens, or as near as pins and protection allow."""


def ways(names: Iterable[str], vectors: DiskVectors | None, state: State = State.WAITED) -> dict[str, Way]:
    """The ways called `names`, policies with vectors in that state.

    Raises PolicyError for a name that is neither one of `OWN` nor a policy's.
    """
    own: dict[str, Way] = {
        "identity": lambda view, targets: [_sent(view, range(len(view.window.slots)))] * len(targets),
        "tail": _tail,
        "oracle": _oracle,
        "lexical": lambda view, targets: _fill(view, targets, view.relevance(None)),
        "relevance": lambda view, targets: _fill(view, targets, view.relevance(vectors)),
    }
    return {name: own.get(name) or _policy(name, vectors, state) for name in names}


_READ = Memo[Any]()

OWN = ("identity", "tail", "oracle", "lexical", "relevance")


def _sent(view: View, slots: Iterable[int]) -> Sent:
    kept = sorted(slots)
    used = view.window.overhead + sum(view.window.slots[i].tokens for i in kept)
    return Sent(frozenset(index for i in kept for index in view.messages[i]), used)


def _held(view: View) -> list[int]:
    return [i for i, slot in enumerate(view.window.slots) if not slot.evictable]


def _take(view: View, target: int, order: Iterable[int], *, contiguous: bool = False) -> Sent:
    """Pinned and protected slots, and of the others, in this order, what still fits."""
    slots = view.window.slots
    kept = set(_held(view))
    room = target - view.window.overhead - sum(slots[i].tokens for i in kept)
    for i in order:
        if i in kept:
            continue
        if slots[i].tokens <= room:
            kept.add(i)
            room -= slots[i].tokens
        elif contiguous:
            break
    return _sent(view, kept)


def _tail(view: View, targets: Sequence[int]) -> list[Sent]:
    """The newest, without a gap: what most clients do."""
    order = range(len(view.window.slots) - 1, -1, -1)
    return [_take(view, target, order, contiguous=True) for target in targets]


def _oracle(view: View, targets: Sequence[int]) -> list[Sent]:
    """Knows the evidence, and takes of each fact the smallest slot that states it: all that pins and budget allow."""
    slots = view.window.slots
    owner = {index: i for i, messages in enumerate(view.messages) for index in messages}
    smallest = {min((owner[index] for index in fact), key=lambda i: slots[i].tokens) for fact in view.probe.facts}
    order = sorted(smallest, key=lambda i: slots[i].tokens)
    return [_take(view, target, order) for target in targets]


def _fill(view: View, targets: Sequence[int], scores: NDArray[np.float64]) -> list[Sent]:
    """The most relevant slots that fit."""
    order = [int(i) for i in np.argsort(-scores, kind="stable")]
    return [_take(view, target, order) for target in targets]


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

    async def run(view: View, targets: Sequence[int]) -> list[Sent]:
        size[0] = view.window.used
        found = []
        for target in targets:
            supply.renew(_history(view.body))
            found.append(await _piped(pipeline, route, view, target))
        return found

    return lambda view, targets: asyncio.run(run(view, targets))


async def _piped(pipeline: Pipeline, route: Route, view: View, target: int) -> Sent:
    start = time.perf_counter()
    outcome = await pipeline.run(Incoming(route=route, body=view.body, reserve=0, budget=target))
    seconds = time.perf_counter() - start
    tokens = outcome.tokens_after or view.window.used
    return Sent(verbatim(view.body, outcome.body), tokens, seconds, outcome.body)


def _history(body: bytes) -> list[str]:
    """The texts that were there before the prompt."""
    messages = wire.parse(body, _READ).messages
    prompt = last_user(messages)
    return [message.text for i, message in enumerate(messages) if i != prompt and message.text.strip()]


def verbatim(body: bytes, sent: bytes) -> frozenset[int]:
    """The client's messages, by index, whose words are all in what was sent: as they stood, or quoted in a note."""
    client, left = wire.parse(body, _READ).messages, wire.parse(sent, _READ).messages
    whole = {message.digest for message in left}
    known = {message.digest for message in client}
    notes = "\n".join(m.text for m in left if m.digest not in known)
    return frozenset(i for i, m in enumerate(client) if m.digest in whole or (m.text and m.text in notes))
