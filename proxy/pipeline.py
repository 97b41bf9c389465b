"""One chat request: read it, replay what was decided, cut where a threshold is reached, splice the rest."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from typing import Any

from policies.types import Context, Policy
from proxy import budget as budgets
from proxy import grouping, splice, wire
from proxy.budget import Budget, Trigger
from proxy.chat import Message
from proxy.decision import Decision, decide
from proxy.errors import ClientError
from proxy.grouping import Group
from proxy.guard import Faults
from proxy.ledger import Ledger
from proxy.memo import Memo
from proxy.outcome import Action, Outcome, Stages
from proxy.prompt import Prompt, assemble, window
from proxy.route import Mode, Route
from proxy.tokens import Cache, Counter, counter

INLINE_BYTES = 64 * 1024  # a larger body is read, counted and cut on a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A chat request as it came: its decoded body and what its path and headers asked for.

    `peek` is what the body says of itself, None where that is still to be read; `model` stands in where the body
    names none (Azure). `pins` are message indexes, negative ones from the end; `policy`, `reserve` and `budget`
    (tokens) replace the route's.
    """

    route: Route
    body: bytes
    peek: wire.Peek | None = None
    model: str | None = None
    pins: tuple[int, ...] = ()
    policy: Policy | None = None
    budget: int | None = None
    reserve: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A request that was parsed and may be decided about."""

    chat: wire.Chat
    groups: tuple[Group, ...]
    counter: Counter
    budget: Budget
    pins: frozenset[int]


class Pipeline:
    """Turns incoming requests into outcomes. Holds only caches: what it learns of one request is never needed again.

    `windows` gives a model's context window in tokens, None where nobody knows it.
    """

    def __init__(
        self,
        windows: Callable[[Route, str | None], int | None],
        *,
        executor: Executor | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._windows = windows
        self._executor = executor
        self._clock = clock
        self._memo = Memo[Any]()
        self._counts = Cache()

    async def run(self, incoming: Incoming) -> Outcome:
        """The outcome of a request; large bodies are worked on in a thread.

        Raises:
            ClientError: what the client asked for cannot be done (a pin that is not there, an overflow to reject).
        """
        if len(incoming.body) <= INLINE_BYTES:
            return self.settle(incoming)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self.settle, incoming)

    def untouched(self, incoming: Incoming) -> Outcome:
        """The outcome of a request that nothing is decided about."""
        return Outcome(
            route=incoming.route,
            body=incoming.body,
            model=incoming.model,
            audit_id=token_hex(8),
            stages=Stages(self._clock),
            policy=(incoming.policy or incoming.route.policy).name,
        )

    def settle(self, incoming: Incoming) -> Outcome:
        """The same, on this thread."""
        outcome = self.untouched(incoming)
        faults = Faults()
        with faults.guard("pipeline", ClientError):
            with outcome.stages.stage("parse"):
                reading = self._read(incoming, outcome)
            if reading is not None:
                self._cut(incoming, reading, Ledger(), outcome, faults)
        outcome.faults = faults.names
        return outcome

    def _read(self, incoming: Incoming, outcome: Outcome) -> Reading | None:
        """The request as messages and groups, or None where nothing can be decided about it."""
        body, route = incoming.body, incoming.route
        if route.mode is Mode.OFF:
            return None
        try:
            peek = incoming.peek or wire.peek(body)
            outcome.model = peek.model or incoming.model
            budget = self._budget(incoming, outcome.model, peek.output_limits)
            outcome.budget = budget
            if budget is None:
                outcome.reason = "window_unknown"
                return None
            if not peek.media and not incoming.pins and len(body) < route.thresholds.warn * budget.tokens:
                outcome.utilization_before = outcome.utilization_after = round(len(body) / budget.tokens, 4)
                return None
            chat = wire.parse(body, self._memo)
        except wire.NotChat as error:
            outcome.reason = error.reason.value
            return None
        pins = _indexes(incoming.pins, len(chat.messages))
        return Reading(
            chat=chat,
            groups=grouping.group(chat.messages),
            counter=counter(outcome.model),
            budget=budget,
            pins=pins,
        )

    def _budget(self, incoming: Incoming, model: str | None, output_limits: tuple[int, ...]) -> Budget | None:
        window = self._windows(incoming.route, model)
        budget = budgets.compute(incoming.route, window, output_limits, fixed=incoming.reserve)
        if incoming.budget is None:
            return budget
        return (
            Budget(None, 0, incoming.budget)
            if budget is None
            else replace(budget, tokens=min(budget.tokens, incoming.budget))
        )

    def _cut(self, incoming: Incoming, reading: Reading, ledger: Ledger, outcome: Outcome, faults: Faults) -> None:
        """Replay the ledger, decide where a threshold is reached, and splice."""
        route, chat, budget = incoming.route, reading.chat, reading.budget
        count = self._count(reading.counter, faults)
        overhead = faults.attempt("counter", lambda: reading.counter.overhead(chat.settings), 0)

        def recount(ledger: Ledger) -> Prompt:
            known = partial(self._counts.message, reading.counter)
            with faults.guard("counter"):  # once for all messages, not once for each
                return assemble(chat.messages, reading.groups, ledger, overhead, known)
            return assemble(chat.messages, reading.groups, ledger, overhead, count)

        with outcome.stages.stage("count"):
            ledger = ledger.settled(reading.groups, reading.pins)
            full = recount(Ledger())
            prompt = recount(ledger) if ledger else full
        outcome.counted = True
        outcome.estimated = reading.counter.estimated
        outcome.tokens_before, outcome.tokens_after = full.used, prompt.used
        outcome.overhead_tokens = overhead
        outcome.slots_total = len(reading.groups)
        outcome.utilization_before = round(full.used / budget.tokens, 4)
        outcome.utilization_after = round(prompt.used / budget.tokens, 4)
        outcome.replayed = sum(1 for group in reading.groups if not prompt.live(group))
        outcome.trigger = budgets.trigger(route, prompt.used, budget.tokens)
        if outcome.trigger is not None:
            with outcome.stages.stage("decide"):
                decision = self._decide(incoming, reading, prompt, ledger, outcome.trigger, outcome, recount, faults)
            ledger = decision.ledger
        if ledger:
            self._splice(incoming, reading, recount(ledger), ledger, outcome, faults)

    def _decide(
        self,
        incoming: Incoming,
        reading: Reading,
        prompt: Prompt,
        ledger: Ledger,
        trigger: Trigger,
        outcome: Outcome,
        recount: Callable[[Ledger], Prompt],
        faults: Faults,
    ) -> Decision:
        route, chat, budget = incoming.route, reading.chat, reading.budget
        count = self._count(reading.counter, faults)

        def content(message: Message) -> int:
            return count(message) - count(replace(message, parts=(), digest=b"empty:" + message.digest))

        outcome.prompt = prompt
        outcome.window = window(prompt, chat.messages, route, budget.tokens, reading.pins, content)
        outcome.target = budgets.target(route, trigger, budget.tokens, prompt.growth)
        own_target = budgets.share(route, trigger) * budget.tokens
        context = Context(
            query=next((m.text for m in reversed(chat.messages) if m.role == "user"), ""),
            overflow=max(0.0, (prompt.used - own_target) / budget.tokens),
            count=reading.counter.content,
        )
        decision = decide(
            incoming.policy or route.policy,
            prompt,
            outcome.window,
            outcome.target,
            context,
            ledger=ledger,
            on_overflow=route.on_overflow,
            recount=recount,
            faults=faults,
        )
        outcome.policy = decision.policy
        outcome.fates = decision.fates
        outcome.slots_evicted = sum(1 for fate in decision.fates.values() if fate.action == "evict")
        if decision.unfit:
            outcome.action = Action.UNFIT
        if decision.overflowed:
            outcome.reason = f"on_overflow_{route.on_overflow.value}"
        return decision

    def _splice(
        self,
        incoming: Incoming,
        reading: Reading,
        prompt: Prompt,
        ledger: Ledger,
        outcome: Outcome,
        faults: Faults,
    ) -> None:
        """Render the ledger into the body, unless the route only watches."""
        with outcome.stages.stage("fulfil"):
            body = faults.attempt(
                "splice", lambda: splice.splice(reading.chat, ledger.edits(reading.chat.messages)), None
            )
            if body is None:
                outcome.tokens_after, outcome.utilization_after = outcome.tokens_before, outcome.utilization_before
                return
            outcome.tokens_after = prompt.used
            outcome.utilization_after = round(prompt.used / reading.budget.tokens, 4)
            if incoming.route.mode is Mode.SHADOW:
                outcome.action = Action.SHADOW
                return
            outcome.body = body
            outcome.changed = True
            if outcome.action is not Action.UNFIT:
                outcome.action = Action.TRIMMED

    def _count(self, counter: Counter, faults: Faults) -> Callable[[Message], int]:
        """A message's tokens, counted once ever; a third of its bytes where the counter fails."""

        def count(message: Message) -> int:
            with faults.guard("counter"):
                return self._counts.message(counter, message)
            return -(-message.size // 3)

        return count


def _indexes(asked: tuple[int, ...], length: int) -> frozenset[int]:
    """The messages that the client pins.

    Raises:
        ClientError: 400 invalid_pin for an index that is not there.
    """
    for index in asked:
        if not -length <= index < length:
            there = f"0 to {length - 1}, or -{length} to -1"
            raise ClientError(
                400, "invalid_pin", f"x-trimtab-pin: message {index} is not there, this request has {there}"
            )
    return frozenset(index % length for index in asked)
