"""The steps of trimming one request, each without waiting for anything: weigh, cut, recall, render."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from policies.plan import Plan
from policies.relevance import pooled
from policies.types import Context, Kind, Need, Policy, Window
from proxy import economics
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Keys, Note
from proxy.guard import Faults
from proxy.pipeline import budget as budgets
from proxy.pipeline import counted, thinning
from proxy.pipeline.budget import Trigger
from proxy.pipeline.decision import Decision, decide, weights, zoned
from proxy.pipeline.gathering import Gathered, Gatherer, Units, similarities
from proxy.pipeline.intake import Incoming, Reading
from proxy.pipeline.keeping import keep_said
from proxy.pipeline.noting import Noting
from proxy.pipeline.outcome import Action, Outcome
from proxy.pipeline.preparation import Clusters, Given, serves
from proxy.pipeline.prompt import Prompt, assemble, marked, window
from proxy.pipeline.uses import said
from proxy.recall.recalling import without_recall
from proxy.route import Mode
from proxy.tokens import Cache
from proxy.wire.chat import Message
from proxy.wire.splice import splice

FirstSeen = Callable[[int], float | None]
"""When a message was first seen, in seconds since the epoch, by its index; None where nobody knows."""


def _unknown(_: int) -> None:
    return None


class Trimming:
    """One request on its way; what each step finds out is written into its outcome."""

    def __init__(
        self,
        incoming: Incoming,
        reading: Reading,
        counts: Cache,
        outcome: Outcome,
        faults: Faults,
        gatherer: Gatherer,
        keys: Keys,
    ) -> None:
        self._incoming = incoming
        self._gatherer = gatherer
        self._keys = keys
        self.noting = Noting(
            incoming, reading, keys, gatherer.library, faults, partial(counts.message, reading.counter)
        )
        self._reading = reading
        self._counts = counts
        self._outcome = outcome
        self._faults = faults
        self._overhead = faults.attempt("counter", lambda: reading.counter.overhead(reading.chat.settings), 0)
        self._limits = thinning.limits(incoming.route, reading.chat)
        self._full: Prompt | None = None
        self._made: list[tuple[Ledger, Prompt]] = []
        self._relevances: tuple[Gathered, Mapping[int, float]] | None = None
        outcome.counted = True
        outcome.estimated = reading.counter.estimated or counted.guesses(reading.chat)
        outcome.overhead_tokens = self._overhead
        outcome.slots_total = len(reading.groups)
        outcome.unknown_messages = counted.unknown(reading.chat)
        if outcome.unknown_messages:
            outcome.reason = "unknown_messages"

    def weigh(self, ledger: Ledger) -> tuple[Ledger, Prompt]:
        """The ledger as it applies to these messages, and the prompt it makes; every message is counted once ever."""
        reading, outcome = self._reading, self._outcome
        with outcome.stages.stage("count"):
            ledger = ledger.settled(reading.groups, reading.pins, len(reading.chat.messages)) if ledger else ledger
            if self._full is None:
                self._full = self.prompt(Ledger())
            prompt = self.prompt(ledger) if ledger else self._full
        outcome.tokens_before = self._full.used
        outcome.utilization_before = self._share(self._full)
        outcome.tokens_after, outcome.utilization_after = prompt.used, self._share(prompt)
        outcome.replayed = sum(map(counted.openings(reading.chat).__getitem__, ledger.drops)) if ledger else 0
        outcome.replayed_from = ledger.decision or None
        return ledger, prompt

    @property
    def uncounted(self) -> int:
        """How many bytes of messages have not been counted before."""
        return counted.uncounted(self._reading.chat, self._reading.counter)

    def prompt(self, ledger: Ledger) -> Prompt:
        """The prompt under a ledger, counted; the same object for the ledgers of the last two calls."""
        for made in self._made:
            if made[0] == ledger:
                return made[1]
        reading, counts = self._reading, self._counts
        exact = partial(counts.message, reading.counter)
        own = partial(counted.tokens, reading.chat, reading.counter, counts)
        prompt = self._faults.attempt("counter", lambda: self._assembled(ledger, exact, own()), None)
        if prompt is None:  # once for all messages, not once for each
            prompt = self._assembled(ledger, self._count, None)
        self._made = [(ledger, prompt), *self._made[:1]]
        return prompt

    def _assembled(self, ledger: Ledger, count: Callable[[Message], int], own: Sequence[int] | None) -> Prompt:
        chat, groups = self._reading.chat, self._reading.groups
        return assemble(chat.messages, groups, ledger, self._overhead, count, self._keys, own=own)

    def trigger(self, prompt: Prompt) -> Trigger | None:
        """The cut that a prompt calls for, or the upstream's refusal of it."""
        if self._incoming.refused is not None:
            return Trigger.RETRY
        due = budgets.trigger(self._incoming.route, prompt.used, self._reading.budget.tokens)
        return Trigger.NORMAL if due is None and self._crowded(prompt) else due

    def early(self, ledger: Ledger, prompt: Prompt, gathered: Gathered) -> Trigger | None:
        """The cut that a prompt calls for together with the note that it asks for.

        A note never reaches the next threshold: where it would, that cut is made now, unless pinned and protected
        slots would leave no room for the note all the same.
        """
        room = self.noting.threshold - prompt.used
        asked = self.noting.due(ledger, prompt, lambda: self._scores(gathered), room)
        if not asked:
            return None
        budget, reserve = self._reading.budget.tokens, self.noting.share if self.noting.cached else asked
        target = budgets.target(self._incoming.route, Trigger.NORMAL, budget, prompt.growth)
        seen = self._window(prompt, self._incoming.trimmer, max(1, target - reserve), reserve)
        stays = seen.overhead + sum(slot.tokens for slot in seen.slots if not slot.evictable)
        if not self.noting.pays(asked, stays, target, room):
            return None
        self._outcome.reason = self._outcome.reason or "note_reaches_threshold"
        return Trigger.NORMAL

    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt is within the budget, and within the messages and bytes that the route sends."""
        return prompt.used <= self._reading.budget.tokens and not self._crowded(prompt)

    def _crowded(self, prompt: Prompt) -> bool:
        return any(limit.exceeded(prompt) for limit in self._limits)

    @property
    def dense(self) -> bool:
        """Whether vectors are of use to the policy, or to recall for it."""
        return bool(self._incoming.trimmer.needs & {Need.SIMILARITY, Need.VECTORS, Need.RATINGS})

    def cut(
        self,
        ledger: Ledger,
        prompt: Prompt,
        why: Trigger,
        gathered: Gathered,
        *,
        first_seen: FirstSeen = _unknown,
        now: float | None = None,
        made: Plan | None = None,
        clusters: Clusters | None = None,
        last: bool = False,
    ) -> Ledger:
        """The ledger after a cut, which every recall note goes with; by the plan `made` ahead, where that serves.

        `clusters` are those of slots that were made ahead. The note that follows may be the `last`.

        Raises:
            ClientError: 400 context_length_exceeded or too_many_messages, 413 request_too_large, where it does not fit
                and the route says reject.
        """
        route, reading, outcome = self._incoming.route, self._reading, self._outcome
        messages, budget = reading.chat.messages, reading.budget.tokens
        outcome.notes_gone = tuple(placed for placed in prompt.notes if placed.note.kind is Kind.RECALL)
        overflow = max(0.0, prompt.used / budget - budgets.share(route, why))
        if outcome.notes_gone:
            ledger = without_recall(ledger)
            prompt = self.prompt(ledger)
        with outcome.stages.stage("gather"):
            policy = self._incoming.trimmer
            if Need.RATINGS in policy.needs:
                gathered = self._gatherer.rated(gathered, messages, route.ratings)
                outcome.gathered = gathered.report
            if why is Trigger.NORMAL and budgets.trigger(route, prompt.used, budget) is None and self._crowded(prompt):
                policy = Given(Plan(policy.name, ()))  # there is room for the tokens
            target = budgets.target(route, why, budget, prompt.growth)
            reserve = self.noting.reserve(ledger, lambda: self._scores(gathered), last=last)
            history = max(1, target - reserve)
            seen = self._window(prompt, policy, history, reserve, clusters, first_seen)
            similarity, vectors = self._by_slot(gathered)
            context = Context(
                query=next((m.text for m in reversed(messages) if m.role == "user"), ""),
                overflow=overflow,
                now=now,
                count=reading.counter.content,
                similarity=similarity,
                vectors=vectors,
                query_vector=None if gathered.query_vector is None else pooled(gathered.query_vector),
                summary_tokens=self.noting.summary_tokens,
            )
            outcome.weights = self._faults.attempt("policy", lambda: weights(policy, seen, context), None)
        with outcome.stages.stage("decide"):
            served = made is not None and serves(made, seen, history, context)
            outcome.prepared = "plan" if served else outcome.prepared
            decision = decide(
                Given(made) if made is not None and served else policy,
                prompt,
                seen,
                history,
                context,
                ledger=ledger,
                on_overflow=route.on_overflow,
                room=int(route.thresholds.evict * budget),
                recount=self.prompt,
                faults=self._faults,
                writer=self.noting.writer(prompt, gathered),
                merge=self.noting.merge,
            )
            decision = self._thinned(decision)
        outcome.prompt, outcome.window, outcome.target, outcome.trigger = prompt, seen, target, why
        outcome.policy, outcome.fates = decision.policy, decision.fates
        gone = {id_ for id_, fate in decision.fates.items() if fate.action in ("evict", "summarize")}
        outcome.slots_evicted = len(gone)
        outcome.cache_marker_evicted = not gone.isdisjoint(marked(prompt))
        if gone:
            # At the most: the provider may have forgotten some of what was sent before.
            taken = economics.cut(seen.slots, gone, cached=prompt.used, overhead=seen.overhead)
            outcome.cache_pays = economics.worthwhile(taken, route.cache)
        if decision.unfit:
            outcome.action = Action.UNFIT
        if decision.overflowed:
            outcome.reason = f"on_overflow_{route.on_overflow.value}"
        return replace(decision.ledger, decision=outcome.audit_id, length=len(messages))

    def _window(
        self,
        prompt: Prompt,
        policy: Policy,
        target: int,
        reserve: int,
        clusters: Clusters | None = None,
        first_seen: FirstSeen = _unknown,
    ) -> Window:
        """A prompt as a policy sees it that is to cut it down to `target` tokens, and `reserve` less for notes."""
        route, reading, budget = self._incoming.route, self._reading, self._reading.budget.tokens
        # What notes may take is taken of the oldest too.
        route = replace(route, keep_prefix=budgets.prefix(route, budget) * target / (target + reserve))
        seen = window(
            prompt,
            reading.chat.messages,
            zoned(route) if getattr(policy, "own_zone", False) else route,
            budget,
            reading.pins,
            content=self._content,
            uses=said(reading.chat) if Need.USES in policy.needs else None,
            clusters=clusters.by_slot if clusters is not None else {},
            first_seen=first_seen,
            target=target,
        )
        if self.noting.cached or not (said_share := getattr(policy, "keep_said", 0.0)):
            return seen
        return keep_said(seen, said_share * budget, self.noting.threshold - reserve)

    def _thinned(self, decision: Decision) -> Decision:
        """The decision with as many slots gone, besides, as the route's further limits ask for."""
        reading = self._reading
        # The oldest slots are kept for the cache's sake where tokens are short, not where messages or bytes are.
        route = replace(self._incoming.route, keep_prefix=0.0)

        def seen(prompt: Prompt) -> Window:
            messages, budget = reading.chat.messages, reading.budget.tokens
            return window(prompt, messages, route, budget, reading.pins, content=self._content)

        for limit in self._limits:
            decision = thinning.thinned(decision, limit, route, recount=self.prompt, seen=seen)
        return decision

    def recall(self, ledger: Ledger, gathered: Gathered, why: Trigger | None, *, last: bool = False) -> Ledger:
        """The ledger with what comes back for the prompt: after a cut, or for a new prompt below the next threshold.

        This note is the `last` where nothing follows on this request.
        """
        if not self.noting.recalls(ledger):
            return ledger
        outcome = self._outcome
        with outcome.stages.stage("fulfil"):
            prompt = self.prompt(ledger)
            target = self.noting.threshold if why is None or outcome.target is None else outcome.target
            most = target if self.noting.cached else max(target, self.noting.threshold)
            after = self.noting.recall(ledger, prompt, self._scores(gathered), most, last=last)
        if after is ledger:
            return ledger
        return replace(after, decision=outcome.audit_id, length=len(self._reading.chat.messages))

    def sealed(self, ledger: Ledger, texts: Mapping[Note, bytes]) -> Ledger:
        """The ledger with a model's summaries in the place of extractive ones, where they save tokens too."""
        return self.noting.sealed(ledger, texts, self.prompt(ledger), self._full or self.prompt(Ledger()))

    def _scores(self, gathered: Gathered) -> Mapping[int, float]:
        """The relevance of each message to the prompt; nothing is, where that cannot be told."""
        if self._relevances is None or self._relevances[0] is not gathered:
            messages = self._reading.chat.messages
            none: Mapping[int, float] = {}
            work = partial(self._gatherer.relevances, messages, gathered)
            self._relevances = gathered, self._faults.attempt("relevance", work, none)
        return self._relevances[1]

    def _by_slot(self, gathered: Gathered) -> tuple[Mapping[str, float], Mapping[str, object]]:
        needs, groups = self._incoming.trimmer.needs, self._reading.groups
        if Need.RATINGS in needs:
            scores = similarities(groups, gathered.ratings or {})
        else:
            scores = similarities(groups, self._scores(gathered)) if Need.SIMILARITY in needs else {}
        return scores, Units(groups, gathered.vectors if Need.VECTORS in needs else {})

    def render(self, ledger: Ledger, prompt: Prompt) -> None:
        """Splice the ledger into the body, unless the route only watches."""
        outcome = self._outcome
        with outcome.stages.stage("fulfil"):
            chat = self._reading.chat
            body = self._faults.attempt("splice", lambda: splice(chat, ledger.edits(chat.messages, self._keys)), None)
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
        counter, digest = self._reading.counter, b"bare:" + message.digest
        whole, rest = self._counts.get((counter.key, message.digest)), self._counts.get((counter.key, digest))
        if whole is not None and rest is not None:
            return counter.total(whole) - counter.total(rest)
        return self._count(message) - self._count(replace(message, parts=(), digest=digest))
