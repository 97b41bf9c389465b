"""A request as those see it who choose what of it is sent: its slots, their texts as an index, their vectors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.facts import Probe
from bench.vectors import DiskVectors
from policies.relevance import Index, Passage, Vectors, relevance
from policies.turns import last_user
from policies.types import Window
from proxy import tokens, wire
from proxy.conversations.ledger import Ledger
from proxy.pipeline import overflow
from proxy.pipeline.prompt import Prompt, assemble, window
from proxy.route import Alternate, Route
from proxy.wire.chat import Message
from proxy.wire.grouping import INSTRUCTIONS, group
from proxy.wire.memo import Memo

PROTECTED = 3  # the last exchange and the question
_COUNTS = tokens.Cache()
_MEMO = Memo[Any]()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a budget leaves no choice about: the window as it is under it, and the `least` that can be sent.

    That is with all gone that may go, and protected slots cut as far as they may be; `cut` says how many tokens of each
    slot that is, by id.
    """

    window: Window
    least: int
    cut: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class View:
    """The window of a probe's request, per slot its messages by index; `query` is the prompt, `asked` its slot.

    `said` are the request's messages.
    """

    probe: Probe
    body: bytes
    said: tuple[Message, ...]
    window: Window
    messages: tuple[tuple[int, ...], ...]
    speakers: tuple[str, ...]
    query: str
    asked: int
    prompt: Prompt
    counter: tokens.Counter
    route: Route
    _bounds: dict[int, Bounds] = field(default_factory=dict, repr=False)

    def bounds(self, target: int) -> Bounds:
        """The bounds of a budget of `target` tokens."""
        if target not in self._bounds:
            seen = _window(self.prompt, self.said, self.route, target, self.counter)
            cut = overflow.freeable(self.prompt, seen, self.counter.content)
            least = overflow.least(self.prompt, seen, self.counter.content)
            self._bounds[target] = Bounds(seen, least, cut)
        return self._bounds[target]

    @property
    def history(self) -> list[str]:
        """The texts that were there before the prompt."""
        prompt = next((i for i in reversed(range(len(self.said))) if self.said[i].role == "user"), None)
        return [message.text for i, message in enumerate(self.said) if i != prompt and message.text.strip()]

    def relevance(self, vectors: DiskVectors | None) -> NDArray[np.float64]:
        """The relevance of each slot to the query, by words alone where there are no vectors; 1 for the query's own."""
        slots = self.window.slots
        others = [i for i in range(len(slots)) if i != self.asked]
        index = Index(tuple(_passage(slots[i].text, self.speakers[i]) for i in others))
        scores = np.ones(len(slots))
        if vectors is None:
            scores[others] = relevance(self.query, index)
        else:
            known: list[Vectors | None] = [vectors.get(slots[i].text) for i in others]
            scores[others] = relevance(self.query, index, known, vectors.get(self.query))
        return scores


def view(probe: Probe, route: Route) -> View:
    """The view of a probe's request under a route's pins; alternation is left free."""
    body = json.dumps(probe.request, ensure_ascii=False).encode()
    chat = wire.parse(body, _MEMO)
    counter = tokens.counter(chat.settings.model)
    groups = group(chat.messages)
    count = partial(_COUNTS.message, counter)
    prompt = assemble(chat.messages, groups, Ledger(), counter.overhead(chat.settings), count)
    seen = _window(prompt, chat.messages, route, prompt.used, counter)
    asked = min(last_user(seen.slots), len(groups) - 1)
    return View(
        probe=probe,
        body=body,
        said=chat.messages,
        window=seen,
        messages=tuple(each.messages for each in groups),
        speakers=tuple(chat.messages[each.messages[0]].name or "" for each in groups),
        query=seen.slots[asked].text,
        asked=asked,
        prompt=prompt,
        counter=counter,
        route=route,
    )


def _window(prompt: Prompt, messages: Sequence[Message], route: Route, budget: int, counter: tokens.Counter) -> Window:
    return window(prompt, messages, route, budget, frozenset(), partial(_COUNTS.message, counter))


def texts(probe: Probe, *, slots: bool) -> list[str]:
    """What vectors are made of: the messages of a probe's request, and its slots where rankings are to have theirs."""
    chat = wire.parse(json.dumps(probe.request, ensure_ascii=False).encode(), _MEMO)
    found = [message.text for message in chat.messages if message.role not in INSTRUCTIONS and message.text.strip()]
    if slots:
        found += ["\n".join(chat.messages[i].text for i in each.messages) for each in group(chat.messages)]
    return found


def bench_route(policy: Any, **settings: Any) -> Route:
    """A route that pins little and lets turns stand as they come."""
    return Route(
        **{
            "name": "bench",
            "upstream": "none",
            "policy": policy,
            "protect_last": PROTECTED,
            "keep_prefix": 0.0,
            "alternate_roles": Alternate.FREE,
            "first_role_user": False,
            **settings,
        }
    )


@cache
def _passage(text: str, speaker: str) -> Passage:
    return Passage.of(text, speaker)
