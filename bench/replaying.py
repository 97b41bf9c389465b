"""A growing conversation sent call by call through the pipeline, and what of it the provider's cache would hold."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.data import Conversation, prefixes
from proxy import tokens, wire
from proxy.conversations import Conversations
from proxy.pipeline import Pipeline, overflow
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.route import Route
from proxy.stores.memory import MemoryStore
from proxy.tokens import Counter
from proxy.wire.chat import Message
from proxy.wire.memo import Memo
from tests.validator import worsened

TASK_SHARE = 0.25  # a current task over this share of the budget may be shortened

_COUNTS = tokens.Cache()
_READ = Memo[Any]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it was sent.

    Tokens: `sent` in all, of these `cached` were sent so by the request before, and `new` belong to messages that the
    client had not sent before; `least` is what it could be brought down to, where it was cut. `cut`: a decision was
    made for it.
    `problems` are what an upstream would refuse, `faults` what failed on the way. `task`: the last user message is in
    it as the client wrote it, or is too large to have to be.
    """

    window: int
    sent: int
    cached: int
    new: int
    least: int
    cut: bool
    problems: tuple[str, ...]
    task: bool
    faults: tuple[str, ...]

    def cost(self, price: float) -> float:
        """What was billed, in tokens at full price, with cached ones at `price`."""
        return self.sent - self.cached * (1 - price)

    def ideal(self, price: float) -> float:
        """What would be billed if only tokens new to the conversation cost the full price."""
        return self.new + (self.sent - self.new) * price


def size(conversation: Conversation) -> int:
    """Tokens of the whole conversation, as our counter has them."""
    chat = wire.parse(json.dumps(conversation.request).encode())
    count = tokens.counter(chat.settings.model)
    return count.overhead(chat.settings) + sum(count.message(message) for message in chat.messages)


async def replay(conversation: Conversation, route: Route, window: int) -> list[Call]:
    """Send the conversation call by call, decisions remembered in between as the proxy remembers them."""
    store = Conversations(MemoryStore(), salt=b"bench", ttl_s=3600.0)
    pipeline = Pipeline(lambda _route, _model: window, store)
    calls: list[Call] = []
    client: tuple[Message, ...] = ()
    before: tuple[Message, ...] = ()
    try:
        for request in prefixes(conversation):
            body = json.dumps(request).encode()
            outcome = await pipeline.run(Incoming(route=route, body=body, reserve=0))
            if outcome.turn is not None:
                await outcome.turn.end()
            calls.append(_call(request, outcome, window, client, before))
            client, before = wire.parse(body, _READ).messages, wire.parse(outcome.body, _READ).messages
    finally:
        await store.close()
    return calls


def _call(
    request: dict[str, Any], outcome: Outcome, window: int, client: Sequence[Message], before: Sequence[Message]
) -> Call:
    """What one request came to; `client` is what the client sent last time, `before` what became of it."""
    asked, sent = wire.parse(json.dumps(request).encode(), _READ), wire.parse(outcome.body, _READ)
    count = tokens.counter(sent.settings.model)
    costs = [_COUNTS.message(count, message) for message in sent.messages]
    overhead = count.overhead(sent.settings)
    origins = _origins(asked.messages, sent.messages)
    fresh = sum(cost for cost, origin in zip(costs, origins, strict=True) if origin is None or origin >= len(client))
    task = next((message for message in reversed(asked.messages) if message.role == "user"), None)
    return Call(
        window=window,
        sent=overhead + sum(costs),
        cached=overhead + sum(costs[: _shared(before, sent.messages)]) if before else 0,
        new=fresh if before else overhead + sum(costs),
        least=_least(outcome, count),
        cut=bool(outcome.fates),
        problems=tuple(
            worsened(request["messages"], json.loads(outcome.body)["messages"], _rewritten(asked, sent, origins))
        ),
        task=task is None
        or any(message.digest == task.digest for message in sent.messages)
        or _COUNTS.message(count, task) > TASK_SHARE * window,
        faults=tuple(outcome.faults),
    )


def _least(outcome: Outcome, count: Counter) -> int:
    """The fewest tokens that could have been sent: what is pinned, and of what is protected what may not be cut."""
    if outcome.prompt is None or outcome.window is None:
        return 0
    return overflow.least(outcome.prompt, outcome.window, count.content)


def _shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many leading messages are the same."""
    pairs = zip(before, after, strict=False)
    return next((i for i, (old, new) in enumerate(pairs) if old.digest != new.digest), min(len(before), len(after)))


def _origins(asked: Sequence[Message], sent: Sequence[Message]) -> list[int | None]:
    """Which of the client's messages each message sent is, shortened ones included; None: a note, or a summary."""
    origins: list[int | None] = []
    start = 0
    for message in sent:
        later = range(start, len(asked))
        origin = next((i for i in later if asked[i].digest == message.digest), None)
        if origin is None:
            origin = next((i for i in later if _shortened(asked[i], message)), None)
        origins.append(origin)
        start = start if origin is None else origin + 1
    return origins


def _shortened(one: Message, other: Message) -> bool:
    """Whether `other` may be what was left of `one`."""
    if (one.role, one.answers, one.calls) != (other.role, other.answers, other.calls):
        return False
    return one.answers is not None or one.text[:64] == other.text[:64]


def _rewritten(asked: wire.Chat, sent: wire.Chat, origins: Sequence[int | None]) -> frozenset[int]:
    pairs = zip(sent.messages, origins, strict=True)
    return frozenset(i for message, i in pairs if i is not None and asked.messages[i].digest != message.digest)
