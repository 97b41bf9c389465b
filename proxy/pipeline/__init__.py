"""One chat request: read it, replay what was decided, cut where a threshold is reached, write it down, render it."""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from secrets import token_hex

from policies.types import Need
from proxy import wire
from proxy.conversations import Conversations
from proxy.conversations.identity import Chain
from proxy.conversations.known import Known, Status, hold
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Keys
from proxy.embeddings import Embeddings
from proxy.errors import ClientError
from proxy.guard import Faults
from proxy.memories import Bounds, Memories
from proxy.pipeline.afterwards import afterwards
from proxy.pipeline.ahead import Ahead, plannable, preparable
from proxy.pipeline.aside import Aside
from proxy.pipeline.calibrating import Calibrating
from proxy.pipeline.evicted import Hooks
from proxy.pipeline.gathering import Gathered, Gatherer
from proxy.pipeline.intake import Incoming, Intake, Read, Reading, Unread, Windows, assigned
from proxy.pipeline.outcome import Action, Outcome, Stages
from proxy.pipeline.prefix import shared_tokens
from proxy.pipeline.preparation import Preparation
from proxy.pipeline.summarising import Summarising
from proxy.pipeline.trimming import Trimming
from proxy.pipeline.uses import said
from proxy.recall.library import Library
from proxy.recall.ratings import Ratings
from proxy.recall.summaries import Summarizer
from proxy.tokens import Cache
from proxy.upstream.lasting import Lasting
from proxy.upstream.learned import learned_key
from proxy.upstream.overflow_errors import Refusal
from proxy.upstream.retrying import Refused, refused


class Pipeline:
    """Turns incoming requests into outcomes.

    `windows` gives a model's context window. Without `conversations` every request is decided about for itself.
    Vectors are waited for at most `wait_s` seconds; without `embeddings` relevance is by words alone, and without a
    `summarizer` summaries are extractive. `ratings` are for policies that go by a model's;
    `hooks` are told what was evicted; `preparation` makes plans ahead. `bounds` are those of what is remembered.
    `executor` works on large bodies, `giants` on the largest. `clock` gives seconds for measuring, `now` seconds since
    the epoch.
    """

    def __init__(
        self,
        windows: Windows,
        conversations: Conversations | None = None,
        *,
        embeddings: Embeddings | None = None,
        wait_s: float = 0.15,
        summarizer: Summarizer | None = None,
        ratings: Ratings | None = None,
        hooks: Hooks | None = None,
        preparation: Preparation | None = None,
        calibrations: Lasting | None = None,
        bounds: Bounds | None = None,
        executor: Executor | None = None,
        giants: Executor | None = None,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        bounds = bounds or Bounds()
        self._intake = Intake(windows, bounds)
        self._conversations = conversations
        self._aside = Aside(executor, giants)
        self._clock = clock
        self._now = now
        self._counts = Cache(max_bytes=bounds.counts)
        self._gatherer = Gatherer(embeddings, Library(bounds.terms), wait_s=wait_s, aside=self._aside, ratings=ratings)
        self._summarizer = summarizer
        self._hooks = hooks
        self._preparation = preparation
        self._calibrating = Calibrating(calibrations, self._counts) if calibrations is not None else None

    @property
    def memories(self) -> Memories:
        """What it remembers, by kind."""
        return {**self._intake.memories, "counts": self._counts.held, "terms": self._gatherer.library.held}

    def peek(self, body: bytes) -> wire.Peek:
        """What a body says of itself; what it shares with a request that was read before is not looked at again.

        Raises wire.NotChat.
        """
        return self._intake.peek(body)

    def untouched(self, incoming: Incoming) -> Outcome:
        """The outcome of a request that nothing is decided about."""
        return Outcome(
            route=incoming.route,
            body=incoming.body,
            model=incoming.model,
            audit_id=token_hex(8),
            stages=Stages(self._clock),
            policy=incoming.trimmer_name,
        )

    def settle(self, incoming: Incoming) -> Outcome:
        """The outcome of a request that stands for itself, worked out on this thread.

        Raises:
            ClientError: what the client asked for cannot be done (a pin that is not there, an overflow to reject).
        """
        outcome, faults = self.untouched(incoming), Faults()
        with faults.guard("pipeline", ClientError):
            reading = self._read(incoming, outcome)
            if reading is not None:
                incoming = assigned(incoming, reading)
                outcome.policy = incoming.trimmer.name
                trimming = Trimming(incoming, reading, self._counts, outcome, faults, self._gatherer, Keys())
                ledger, prompt = trimming.weigh(Ledger())
                if (why := trimming.trigger(prompt)) is not None:
                    gathered = Gathered()
                    with outcome.stages.stage("gather"), faults.guard("gather"):
                        gathered = self._gatherer.wait(reading.chat.messages, dense=trimming.dense)
                    outcome.gathered = gathered.report
                    ledger = trimming.cut(ledger, prompt, why, gathered, now=self._now(), last=True)
                    ledger = trimming.recall(ledger, gathered, why, last=True)
                    if ledger:
                        sent = trimming.prompt(ledger)
                        outcome.notes_made = sent.notes
                        trimming.render(ledger, sent)
        outcome.faults = faults.names
        return outcome

    async def run(self, incoming: Incoming) -> Outcome:
        """The outcome of a request that continues a conversation; its turn, where it has one, is to be ended.

        Raises ClientError as `settle` does.
        """
        if self._conversations is None:
            return await self._aside(len(incoming.body), lambda: self.settle(incoming))
        outcome, faults = self.untouched(incoming), Faults()
        try:
            with faults.guard("pipeline", ClientError):
                reading = await self._aside(incoming.fresh, lambda: self._read(incoming, outcome))
                if reading is not None:
                    await self._converse(self._conversations, incoming, reading, outcome, faults)
        except BaseException:
            if outcome.turn is not None:
                outcome.turn.release()
            raise
        if "pipeline" in faults.names:
            outcome.body, outcome.changed, outcome.action = incoming.body, False, Action.PASS
        outcome.faults = faults.names
        return outcome

    async def retry(self, incoming: Incoming, first: Outcome, refusal: Refusal) -> Outcome | None:
        """The outcome of a request that its upstream refused as too long, cut again from what the client sent.

        None where that would send nothing shorter; `first` stands then. Its turn goes over to the new outcome.
        """
        sent = first.tokens_after
        if sent is None:
            counted = await self._aside(len(incoming.body), lambda: self._measure(incoming))
            if counted is None:
                return None
            sent = counted
        left = refused(refusal, sent, first.budget.reserve if first.budget is not None else 0)
        if left is None:
            return None
        outcome = await self.run(replace(incoming, refused=left))
        if not outcome.changed or len(outcome.body) >= len(first.body):
            if outcome.turn is not None:
                outcome.turn.release()
            return None
        if first.turn is not None:
            first.turn.release()
        outcome.action, outcome.retried = Action.RETRIED, first.audit_id
        return outcome

    def _measure(self, incoming: Incoming) -> int | None:
        """The tokens of a request as it came, None where it cannot be read."""
        faults, outcome = Faults(), self.untouched(incoming)
        with faults.guard("pipeline"):
            # The least budget there is, so that nothing is taken to fit without counting.
            reading = self._read(replace(incoming, refused=Refused(None, 0, 1)), outcome)
            if reading is not None:
                trimming = Trimming(incoming, reading, self._counts, outcome, faults, self._gatherer, Keys())
                return trimming.weigh(Ledger())[1].used
        return None

    def _read(self, incoming: Incoming, outcome: Outcome) -> Reading | None:
        with outcome.stages.stage("parse"):
            done: Read = self._intake.read(incoming)
        outcome.model, outcome.budget = done.model, done.budget
        if isinstance(done.found, Unread):
            outcome.reason = done.found.reason
            outcome.utilization_before = outcome.utilization_after = done.found.bound
            return None
        return done.found

    async def _converse(
        self,
        conversations: Conversations,
        incoming: Incoming,
        reading: Reading,
        outcome: Outcome,
        faults: Faults,
    ) -> None:
        chain = conversations.chain(
            reading.canonicals,
            route=incoming.route.name,
            tenant=incoming.tenant,
            session=incoming.session,
            variant=incoming.variant,
            carry=reading.chat.carry,
        )
        incoming = assigned(incoming, reading, chain)
        outcome.policy = incoming.trimmer.name
        key = learned_key(incoming.route.name, outcome.model, incoming.tenant)
        if self._calibrating is not None:
            with faults.guard("calibration"):
                reading = await self._calibrating.reading(reading, key, chain)
        trimming = Trimming(incoming, reading, self._counts, outcome, faults, self._gatherer, conversations.keys)
        if self._preparation is not None:
            self._preparation.begin(chain)
        known = await conversations.replay(chain)
        ledger, prompt = await self._aside(trimming.uncounted, lambda: trimming.weigh(known.ledger))
        move = hold(known.turns, fits=trimming.fits(prompt), waited=False)
        if move == "wait":
            known = await self._wait(conversations, chain, known, incoming, outcome)
            ledger, prompt = await self._aside(trimming.uncounted, lambda: trimming.weigh(known.ledger))
            move = hold(known.turns, fits=trimming.fits(prompt), waited=True)
        before = ledger
        why = trimming.trigger(prompt) if move in ("free", "alone") else None
        asks = move == "free" and (why is not None or known.index < len(chain) - 1)
        if why is not None or (asks and reading.prompts and trimming.noting.recalls(ledger)):
            gathered = Gathered()
            with outcome.stages.stage("gather"), faults.guard("gather"):
                only = None if why is not None else frozenset((*ledger.drops, *ledger.clears, *ledger.truncations))
                gathered = await self._gatherer.gather(
                    reading.chat.messages,
                    dense=trimming.dense,
                    only=only,
                    spent_s=outcome.stages.spent_s - outcome.held_ms / 1000,
                    meanwhile=partial(said, reading.chat) if Need.USES in incoming.trimmer.needs else None,
                )
                if why is None:
                    some = gathered
                    why = await self._aside(len(incoming.body), lambda: trimming.early(before, prompt, some))
                    if why is not None:
                        spent_s = outcome.stages.spent_s - outcome.held_ms / 1000
                        gathered = await self._gatherer.gather(
                            reading.chat.messages, dense=trimming.dense, spent_s=spent_s
                        )
            outcome.gathered = gathered.report
            outcome.prepared = "parts" if gathered.prepared else outcome.prepared
            if why is not None:
                reason, made, clusters = why, None, None
                if self._preparation is not None:
                    made = self._preparation.take(chain, known.ledger.decision) if plannable(incoming) else None
                    clusters = self._preparation.clusters(chain)
                ledger = await self._aside(
                    len(incoming.body),
                    lambda: trimming.cut(
                        before,
                        prompt,
                        reason,
                        gathered,
                        first_seen=known.first_seen,
                        now=self._now(),
                        made=made,
                        clusters=clusters,
                    ),
                )
                if move == "free":
                    writing = Summarising(self._summarizer, conversations, self._aside, outcome, faults)
                    ledger = await writing.summarised(incoming, chain, trimming, before, ledger)
            if asks:
                cut = ledger
                ledger = await self._aside(len(incoming.body), lambda: trimming.recall(cut, gathered, why))
        new = ledger if ledger is not before and move == "free" and ledger else None
        turn = await conversations.begin(chain, known, new)
        outcome.turn = turn
        outcome.conversation = turn.known.conversation or None
        outcome.ledger = _status(known, turn.known)
        stood = known.ledger if new is None else new
        lost = move == "free" and turn.known.ledger.decision != stood.decision
        if lost:
            ledger = self._lost(turn.known, trimming, outcome)
        sent = trimming.prompt(ledger) if ledger else prompt
        if ledger is not before and not lost:
            outcome.notes_made = tuple(placed for placed in sent.notes if placed.note not in before.notes)
        if ledger:
            await self._aside(len(incoming.body), lambda: trimming.render(ledger, sent))
        if move in ("held", "alone") and outcome.action in (Action.PASS, Action.TRIMMED):
            outcome.action = Action.HELD
        if known.entry is not None:
            then = trimming.prompt(known.ledger)
            outcome.cache_prefix_tokens = shared_tokens(then, known.index + 1, sent)
            whole = shared_tokens(then, known.index + 1, then)
            outcome.cache_lost_tokens = max(0, whole - outcome.cache_prefix_tokens)
        if self._calibrating is not None and outcome.changed == bool(ledger):
            with faults.guard("calibration"):
                outcome.teach = self._calibrating.teach(reading, key, chain, sent)
        if move not in ("held", "alone"):
            outcome.after = afterwards(reading.chat, outcome, ledger.drops - before.drops, self._hooks)
        if move == "free" and self._preparation is not None and preparable(incoming):
            ahead = Ahead(
                incoming=incoming,
                reading=reading,
                known=turn.known,
                counts=self._counts,
                gatherer=self._gatherer,
                keys=conversations.keys,
                stages=Stages(self._clock),
                now=self._now(),
                sent=sent.used,
                clusters=self._preparation.clusters(chain),
            )
            outcome.prepare = partial(ahead.put, self._preparation, chain)

    async def _wait(
        self, conversations: Conversations, chain: Chain, known: Known, incoming: Incoming, outcome: Outcome
    ) -> Known:
        """What is known once the turns in flight have ended, or the route's patience has."""
        start = self._clock()
        await conversations.wait(known.turns, incoming.route.hold_wait_s)
        outcome.held_ms = (self._clock() - start) * 1000
        return await conversations.replay(chain)

    def _lost(self, known: Known, trimming: Trimming, outcome: Outcome) -> Ledger:
        """Another request with the same messages was first: its decision is sent, and this one's is forgotten."""
        outcome.prompt, outcome.window, outcome.fates, outcome.slots_evicted = None, None, {}, 0
        outcome.trigger, outcome.target, outcome.action = None, None, Action.PASS
        outcome.notes_made, outcome.notes_gone, outcome.weights = (), (), None
        ledger, _ = trimming.weigh(known.ledger)
        return ledger


def _status(before: Known, after: Known) -> str:
    if before.status is Status.MISSING or (before.status is Status.NONE and after.store_failed):
        return Status.MISSING.value
    return before.status.value
