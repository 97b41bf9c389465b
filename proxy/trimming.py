"""The steps of trimming one request, each without waiting for anything: weigh, cut, render."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from policies.types import Context
from proxy import budget as budgets
from proxy import media
from proxy.budget import Trigger
from proxy.chat import Message
from proxy.decision import decide
from proxy.guard import Faults
from proxy.intake import Incoming, Reading
from proxy.ledger import Ledger
from proxy.outcome import Action, Outcome
from proxy.prompt import Prompt, assemble, window
from proxy.route import Mode
from proxy.splice import splice
from proxy.tokens import Cache

FirstSeen = Callable[[int], float | None]
"""When a message was first seen, in seconds since the epoch, by its index; None where nobody knows."""


def _unknown(_: int) -> None:
    return None


class Trimming:
    """One request on its way; what each step finds out is written into its outcome."""

    def __init__(self, incoming: Incoming, reading: Reading, counts: Cache, outcome: Outcome, faults: Faults) -> None:
        self._incoming = incoming
        self._reading = reading
        self._counts = counts
        self._outcome = outcome
        self._faults = faults
        self._overhead = faults.attempt("counter", lambda: reading.counter.overhead(reading.chat.settings), 0)
        self._full: Prompt | None = None
        outcome.counted = True
        guesses = (media.guessed(part) for message in reading.chat.messages for part in message.parts)
        outcome.estimated = reading.counter.estimated or any(guesses)
        outcome.overhead_tokens = self._overhead
        outcome.slots_total = len(reading.groups)

    def weigh(self, ledger: Ledger) -> tuple[Ledger, Prompt]:
        """The ledger as it applies to these messages, and the prompt it makes; every message is counted once ever."""
        reading, outcome = self._reading, self._outcome
        with outcome.stages.stage("count"):
            ledger = ledger.settled(reading.groups, reading.pins) if ledger else ledger
            if self._full is None:
                self._full = self.prompt(Ledger())
            prompt = self.prompt(ledger) if ledger else self._full
        outcome.tokens_before = self._full.used
        outcome.utilization_before = self._share(self._full)
        outcome.tokens_after, outcome.utilization_after = prompt.used, self._share(prompt)
        outcome.replayed = sum(1 for group in reading.groups if not prompt.live(group)) if ledger else 0
        outcome.replayed_from = ledger.decision or None
        return ledger, prompt

    def prompt(self, ledger: Ledger) -> Prompt:
        """The prompt under a ledger, counted."""
        reading = self._reading
        exact = partial(self._counts.message, reading.counter)
        with self._faults.guard("counter"):  # once for all messages, not once for each
            return assemble(reading.chat.messages, reading.groups, ledger, self._overhead, exact)
        return assemble(reading.chat.messages, reading.groups, ledger, self._overhead, self._count)

    def trigger(self, prompt: Prompt) -> Trigger | None:
        """The cut that a prompt calls for."""
        return budgets.trigger(self._incoming.route, prompt.used, self._reading.budget.tokens)

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt is within the budget."""
        return prompt.used <= self._reading.budget.tokens

    def cut(
        self,
        ledger: Ledger,
        prompt: Prompt,
        why: Trigger,
        *,
        first_seen: FirstSeen = _unknown,
        now: float | None = None,
    ) -> Ledger:
        """The ledger after a cut.

        Raises:
            ClientError: 400 context_length_exceeded, where it does not fit and the route says reject.
        """
        route, reading, outcome = self._incoming.route, self._reading, self._outcome
        messages, budget = reading.chat.messages, reading.budget.tokens
        with outcome.stages.stage("gather"):
            policy = self._incoming.trimmer
            seen = window(
                prompt,
                messages,
                route,
                budget,
                reading.pins,
                content=self._content,
                needs=policy.needs,
                first_seen=first_seen,
            )
            target = budgets.target(route, why, budget, prompt.growth)
            context = Context(
                query=next((m.text for m in reversed(messages) if m.role == "user"), ""),
                overflow=max(0.0, prompt.used / budget - budgets.share(route, why)),
                now=now,
                count=reading.counter.content,
            )
        with outcome.stages.stage("decide"):
            decision = decide(
                policy,
                prompt,
                seen,
                target,
                context,
                ledger=ledger,
                on_overflow=route.on_overflow,
                room=int(route.thresholds.evict * budget),
                recount=self.prompt,
                faults=self._faults,
            )
        outcome.prompt, outcome.window, outcome.target, outcome.trigger = prompt, seen, target, why
        outcome.policy, outcome.fates = decision.policy, decision.fates
        outcome.slots_evicted = sum(1 for fate in decision.fates.values() if fate.action == "evict")
        if decision.unfit:
            outcome.action = Action.UNFIT
        if decision.overflowed:
            outcome.reason = f"on_overflow_{route.on_overflow.value}"
        return replace(decision.ledger, decision=outcome.audit_id, length=len(messages))

    def render(self, ledger: Ledger, prompt: Prompt) -> None:
        """Splice the ledger into the body, unless the route only watches."""
        outcome = self._outcome
        with outcome.stages.stage("fulfil"):
            chat = self._reading.chat
            body = self._faults.attempt("splice", lambda: splice(chat, ledger.edits(chat.messages)), None)
        if body is None:
            outcome.tokens_after, outcome.utilization_after = outcome.tokens_before, outcome.utilization_before
            return
        outcome.tokens_after, outcome.utilization_after = prompt.used, self._share(prompt)
        if self._incoming.route.mode is Mode.SHADOW:
            outcome.action = Action.SHADOW
            return
        outcome.body = body
        outcome.changed = True
        if outcome.action is Action.PASS:
            outcome.action = Action.TRIMMED

    def _share(self, prompt: Prompt) -> float:
        return round(prompt.used / self._reading.budget.tokens, 4)

    def _count(self, message: Message) -> int:
        """A message's tokens; a third of its bytes where the counter fails."""
        with self._faults.guard("counter"):
            return self._counts.message(self._reading.counter, message)
        return -(-message.size // 3)

    def _content(self, message: Message) -> int:
        """What a message costs beyond the same message without content."""
        bare = replace(message, parts=(), digest=b"bare:" + message.digest)
        return self._count(message) - self._count(bare)
