"""A chat request as it came, and what is read of it before anything is decided. (pure)"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from policies.types import Policy
from proxy import wire
from proxy.conversations import identity
from proxy.conversations.identity import Chain
from proxy.errors import ClientError
from proxy.experiment import first_user
from proxy.memories import Bounds, Memories
from proxy.pipeline import budget as budgets
from proxy.pipeline import counted
from proxy.pipeline.budget import Budget
from proxy.pipeline.thinning import may_exceed
from proxy.route import Mode, Route
from proxy.tokens import Counter, counter
from proxy.upstream.retrying import Refused
from proxy.wire.grouping import Group
from proxy.wire.history import History
from proxy.wire.memo import Memo

Windows = Callable[[Route, str | None], int | None]
"""The context window of a route's model in tokens, None where nobody knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A chat request as it came: its decoded body and what its path and headers asked for.

    `peek` is what the body says of itself, None where that is still to be read; `model` stands in where the body
    names none (Azure). `pins` are message indexes, negative ones from the end; `policy`, `reserve` and `budget`
    (tokens) replace the route's. `tenant` and `session` set conversations apart. `learned` is a window, in tokens, that
    the upstream has enforced before; `refused` says that this very request was too long for it.
    """

    route: Route
    body: bytes
    peek: wire.Peek | None = None
    model: str | None = None
    pins: tuple[int, ...] = ()
    policy: Policy | None = None
    budget: int | None = None
    reserve: int | None = None
    tenant: bytes = b""
    session: str | None = None
    learned: int | None = None
    refused: Refused | None = None

    @property
    def fresh(self) -> int:
        """How many bytes of the body have not been seen before, in a request that it goes on from."""
        return len(self.body) if self.peek is None else min(self.peek.fresh, len(self.body))

    @property
    def trimmer(self) -> Policy:
        """The policy that decides: the one asked for, else the route's."""
        return self.policy or self.route.policy

    @property
    def trimmer_name(self) -> str:
        """The name of that policy; where an experiment is to decide which, that."""
        return "experiment" if self.route.experiment is not None and self.policy is None else self.trimmer.name

    @property
    def variant(self) -> str:
        """What sets this request's ledgers apart from those of the route's plain requests; empty for those."""
        own = [] if self.route.mode is Mode.ENFORCE else [self.route.mode.value]
        own += [f"policy={self.policy!r}"] if self.policy is not None else []
        own += [f"budget={self.budget}"] if self.budget is not None else []
        return ",".join(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A request that may be decided about."""

    chat: wire.Chat
    groups: tuple[Group, ...]
    counter: Counter
    budget: Budget
    pins: frozenset[int]

    @property
    def canonicals(self) -> tuple[bytes, ...]:
        """The canonical digest of each message."""
        return counted.canonicals(self.chat)

    @property
    def prompts(self) -> bool:
        """Whether the request ends with a user's message."""
        return self.chat.messages[-1].role == "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A request that nothing is decided about, and why; `bound` is its utilization at the most, where that is why."""

    reason: str | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read: the model, the budget where there is one, and the messages where they matter."""

    model: str | None
    budget: Budget | None
    found: Reading | Unread


class Intake:
    """Reads requests as far as it matters, and remembers what it read of them."""

    def __init__(self, windows: Windows, bounds: Bounds) -> None:
        self._windows = windows
        self._memo = Memo[Any](bounds.messages)
        self._history = History(bounds.requests)

    @property
    def memories(self) -> Memories:
        """What it remembers."""
        return {"messages": self._memo.held, "requests": self._history.held}

    def peek(self, body: bytes) -> wire.Peek:
        """What a body says of itself; what it shares with a request that was read before is not looked at again.

        Raises:
            NotChat: see `wire.peek`.
        """
        return wire.peek(body, self._history)

    def read(self, incoming: Incoming) -> Read:
        """Read a request.

        Raises:
            ClientError: 400 invalid_pin, for a pin on a message that is not there.
        """
        body, route, model, budget = incoming.body, incoming.route, incoming.model, None
        if route.mode is Mode.OFF:
            return Read(model=model, budget=None, found=Unread())
        try:
            peek = incoming.peek or self.peek(body)
            model = peek.model or model
            budget = _budget(incoming, _smaller(self._windows(route, model), incoming.learned), peek.output_limits)
            if budget is None:
                return Read(model=model, budget=None, found=Unread(reason="window_unknown"))
            surely = not peek.media and not incoming.pins and incoming.refused is None
            surely = surely and not may_exceed(len(body), route)
            if surely and len(body) < route.thresholds.warn * budget.tokens:
                return Read(model=model, budget=budget, found=Unread(bound=round(len(body) / budget.tokens, 4)))
            chat = wire.parse(body, self._memo, self._history, peek)
        except wire.NotChat as error:
            return Read(model=model, budget=budget, found=Unread(reason=error.reason.value))
        found = Reading(
            chat=chat,
            groups=chat.groups,
            counter=counter(model),
            budget=budget,
            pins=_indexes(incoming.pins, len(chat.messages)),
        )
        return Read(model=model, budget=budget, found=found)


def assigned(incoming: Incoming, reading: Reading, chain: Chain | None = None) -> Incoming:
    """The request with the policy that the route's experiment has for its conversation; one that was asked for stands.

    Without a `chain` the conversation is told by its messages alone.
    """
    experiment, messages = incoming.route.experiment, reading.chat.messages
    if experiment is None or incoming.policy is not None:
        return incoming
    if chain is None:
        root = identity.root(b"", incoming.route.name, incoming.tenant, incoming.session, incoming.variant)
        chain = identity.chain(root, [message.canonical for message in messages])
    chosen = experiment.choose(chain[first_user(messages)])
    return replace(incoming, route=replace(incoming.route, policy=chosen, experiment=None))


def _smaller(window: int | None, learned: int | None) -> int | None:
    return learned if window is None else window if learned is None else min(window, learned)


def _budget(incoming: Incoming, window: int | None, output_limits: tuple[int, ...]) -> Budget | None:
    if (refused := incoming.refused) is not None:
        return Budget(refused.window or window, refused.reserve, refused.tokens)
    budget = budgets.compute(incoming.route, window, output_limits, fixed=incoming.reserve)
    if incoming.budget is None:
        return budget
    if budget is None:
        return Budget(None, 0, incoming.budget)
    return replace(budget, tokens=min(budget.tokens, incoming.budget))


def _indexes(asked: tuple[int, ...], length: int) -> frozenset[int]:
    for index in asked:
        if not -length <= index < length:
            there = f"0 to {length - 1}, or -{length} to -1"
            message = f"x-trimtab-pin: message {index} is not there, this request has {there}"
            raise ClientError(400, "invalid_pin", message)
    return frozenset(index % length for index in asked)
