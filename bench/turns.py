"""Whole requests through the pipeline: those with which conversations are cut, after turns that prepared them or none.

A conversation is one question short of its cut when the turn before it ends. Nothing of it is sent anywhere.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from policies.types import Policy
from proxy import tokens, wire
from proxy.conversations import Conversations
from proxy.conversations.background import Background
from proxy.embeddings import Embedder, Embeddings
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.pipeline.preparation import Preparation
from proxy.route import Route, Targets, Thresholds
from proxy.stores.memory import MemoryStore

DIMENSIONS, TOPICS = 384, 12
MODEL = "gpt-4o"
OVER = 1.0005  # times the threshold: so little that the turn before stays under it
THRESHOLDS = Thresholds()
TARGETS = Targets(evict=0.60, emergency=0.50)  # deep enough that `hybrid` goes by meaning
WAIT_S = 0.15  # the default of embeddings.wait_ms

_TOPICS = np.random.default_rng(0).normal(size=(TOPICS, DIMENSIONS))

Json = dict[str, object]
Clock = Callable[[], float]
"""Seconds, of the wall or of the processor."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A request with which a conversation was cut, and the seconds from its bytes to the bytes that would be sent."""

    outcome: Outcome
    seconds: float


class Instant:
    """An embedder that takes hardly any time: vectors around topics, by the digest of a text."""

    name = "instant"

    def reads(self, text: str) -> bool:
        """Always."""
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """A vector for each text."""
        return [self._vector(blake2b(text.encode(), digest_size=8).digest()) for text in texts]

    def close(self) -> None:
        """Nothing is open."""

    def _vector(self, digest: bytes) -> NDArray[np.float32]:
        chance = np.random.default_rng(int.from_bytes(digest, "big"))
        row = _TOPICS[chance.integers(0, TOPICS)] + chance.normal(size=DIMENSIONS)
        unit: NDArray[np.float32] = (row / np.linalg.norm(row)).astype(np.float32)
        return unit[None, :]


class Half:
    """An embedder that takes hardly any time for the past, and what `model` takes for what is `new`."""

    name = "half"

    def __init__(self, model: Embedder) -> None:
        self._model = model
        self._instant = Instant()
        self.new = False

    def reads(self, text: str) -> bool:
        """What the model says."""
        return self._model.reads(text)

    def embed(self, texts: Sequence[str]) -> Sequence[NDArray[np.floating]]:
        """A vector for each text."""
        return self._model.embed(texts) if self.new else self._instant.embed(texts)

    def close(self) -> None:
        """The model is left to whoever made it."""


def messages(texts: Sequence[str]) -> list[Json]:
    """A conversation: instructions, then users and assistants in turns; every eighth text is what a tool answered."""
    found: list[Json] = [{"role": "system", "content": "Be brief."}]
    for i, text in enumerate(texts[:-1]):
        if i % 8 == 7:
            call = {
                "id": f"call_{i}",
                "type": "function",
                "function": {"name": "look_up", "arguments": f'{{"n": {i}}}'},
            }
            found.append({"role": "assistant", "content": None, "tool_calls": [call]})
            found.append({"role": "tool", "tool_call_id": f"call_{i}", "content": text})
        else:
            found.append({"role": "assistant" if i % 2 else "user", "content": text})
    if "tool_calls" in found[-1] or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": "Noted."})
    return [*found, {"role": "user", "content": texts[-1]}]


class Desk:
    """A worker's pipeline on a store in memory."""

    def __init__(self, embedder: Embedder | None, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._embeddings = Embeddings(embedder)
        self._background = Background()
        conversations = Conversations(MemoryStore(), salt=b"bench", ttl_s=86_400)
        self._pipeline = Pipeline(
            lambda route, _: route.window,
            conversations,
            embeddings=self._embeddings,
            wait_s=WAIT_S,
            preparation=Preparation(self._background),
        )

    async def send(self, route: Route, said: Sequence[Json]) -> Cut:
        """A request, its turn ended."""
        body = json.dumps({"model": MODEL, "messages": said}).encode()
        start = self._clock()
        outcome = await self._pipeline.run(Incoming(route=route, body=body, peek=self._pipeline.peek(body)))
        seconds = self._clock() - start
        assert not outcome.faults, outcome.faults
        if outcome.turn is not None:
            await outcome.turn.end()
        return Cut(outcome, seconds)

    async def prepare(self, outcome: Outcome, reply: Json) -> None:
        """What is done once the turn has ended, waited for."""
        if outcome.prepare is not None:
            outcome.prepare(reply)
        while self._background.counts.busy or self._embeddings.stats.waiting:  # noqa: ASYNC110 - threads, no event
            await asyncio.sleep(0.002)

    def close(self) -> None:
        """Stop the threads."""
        self._background.close()
        self._embeddings.close()


async def cut(
    desk: Desk, policy: Policy, texts: Sequence[str], *, prepared: bool, then: Callable[[], None] = lambda: None
) -> Cut:
    """The request with which a conversation of these texts is cut; `prepared`: the turn before it came by here.

    `then` is called before it.
    """
    said = messages(texts)
    route = Route(
        name="bench",
        upstream="none",
        policy=policy,
        window=int(size(said) / (THRESHOLDS.evict * OVER)),
        reserve_output=0,
        targets=TARGETS,
    )
    if prepared:
        for length in (4, 2):  # one that is read and counted anew, and one that goes on from it
            before = await desk.send(route, said[:-length])
            assert before.outcome.trigger is None, "cut a turn too early"
            await desk.prepare(before.outcome, said[-length])
    then()
    made = await desk.send(route, said)
    assert made.outcome.trigger is not None, "not cut"
    return made


def warm(policy: Policy, talks: Iterable[Sequence[str]], clock: Clock, model: Embedder | None = None) -> list[float]:
    """Seconds that prepared requests took; with a `model` that embeds what is new."""

    async def work() -> list[float]:
        half = None if model is None else Half(model)
        desk = Desk(half or Instant(), clock)
        seconds = []
        for texts in talks:
            made = await cut(desk, policy, texts, prepared=True, then=lambda: _switch(half, on=True))
            _switch(half, on=False)
            seconds.append(made.seconds)
        desk.close()
        return seconds

    return asyncio.run(work())


def cold(policy: Policy, talks: Iterable[Sequence[str]], clock: Clock, model: Embedder | None = None) -> list[float]:
    """Seconds that requests took of which nothing was seen before; with a `model` that embeds what it can in time."""

    async def one(texts: Sequence[str]) -> float:
        half = None if model is None else Half(model)
        _switch(half, on=True)
        desk = Desk(half, clock)
        made = await cut(desk, policy, texts, prepared=False)
        desk.close()
        return made.seconds

    async def work() -> list[float]:
        return [await one(texts) for texts in talks]

    return asyncio.run(work())


def _switch(half: Half | None, *, on: bool) -> None:
    if half is not None:
        half.new = on


def size(said: Sequence[Json]) -> int:
    """The tokens of a request of these messages."""
    chat, counter = wire.parse(json.dumps({"model": MODEL, "messages": said}).encode()), tokens.counter(MODEL)
    return sum(map(counter.message, chat.messages)) + counter.overhead(chat.settings)
