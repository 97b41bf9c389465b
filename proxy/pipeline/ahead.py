"""What a conversation's next cut will need, made before anybody asks for it: its plan, or what plans are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from policies.types import Clusterer, Need, Policy, reads_prompt
from proxy.conversations.identity import Chain
from proxy.conversations.known import Known
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Keys
from proxy.guard import Faults
from proxy.pipeline.budget import Trigger
from proxy.pipeline.gathering import Gathered, Gatherer
from proxy.pipeline.intake import Incoming, Reading
from proxy.pipeline.outcome import Outcome, Stages
from proxy.pipeline.preparation import MOST_BYTES, Clustering, Clusters, Job, Preparation, Rehearsal
from proxy.pipeline.prompt import Prompt
from proxy.pipeline.trimming import Trimming
from proxy.pipeline.uses import said
from proxy.route import OnOverflow
from proxy.tokens import Cache
from proxy.wire import grouping
from proxy.wire.chat import Message
from proxy.wire.history import size_of

ANEW = 1.25  # times as many slots as when clusters were made: then they are made anew


def plannable(incoming: Incoming) -> bool:
    """Whether the next cut can be planned: the policy does not look at the prompt, and nothing is asked for apart."""
    own = incoming.pins or incoming.refused is not None
    return not own and len(incoming.body) <= MOST_BYTES and not reads_prompt(incoming.trimmer)


def preparable(incoming: Incoming) -> bool:
    """Whether anything of the next cut can be made ahead: its plan, or parts of one."""
    return plannable(incoming) or (len(incoming.body) <= MOST_BYTES and bool(incoming.trimmer.needs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Prepares for what comes after a request of which `sent` tokens went out, under the ledger of `known`.

    From the threshold `warn` on, by the prompt as it was sent and its reply; below it nothing is done. `now` is in
    seconds since the epoch.
    """

    incoming: Incoming
    reading: Reading
    known: Known
    counts: Cache
    gatherer: Gatherer
    keys: Keys
    stages: Stages
    now: float
    sent: int
    clusters: Clusters | None = None

    def put(self, preparation: Preparation, chain: Chain, reply: Mapping[str, Any] | None) -> None:
        """Prepare in the background, now that the reply is known; None where there is no whole one."""
        most = self.sent + (0 if reply is None else len(msgspec.json.encode(reply)))  # a token is a byte at least
        if most < self._warn:
            return
        plans = preparation.plans and reply is not None and plannable(self.incoming)

        def work(message: Message | None, job: Job) -> None:
            self._prepare(message, job, plans=plans)

        preparation.put(chain, reply, work, size_of(self.reading.chat))

    @property
    def _warn(self) -> float:
        return self.incoming.route.thresholds.warn * self.reading.budget.tokens

    def _prepare(self, reply: Message | None, job: Job, *, plans: bool) -> None:
        faults = Faults()
        trimming, _, prompt = self._weighed(reply, self.incoming.trimmer, faults)
        if prompt.used < self._warn:
            return
        if plans:
            self._plan(reply, job)
        needs = self.incoming.trimmer.needs
        if Need.USES in needs:
            said(self.reading.chat)
        messages = self._longer(reply).chat.messages
        if Need.RATINGS in needs:
            self.gatherer.rate(messages, self.incoming.route.ratings)
        if trimming.dense and job.wanted:
            self.gatherer.read_closely(messages, lambda: job.wanted)
            self.gatherer.prepare(messages, then=job.later(lambda: self._cluster(reply, job)))

    def _plan(self, reply: Message | None, job: Job) -> None:
        """The next normal cut, with room for one turn more."""
        faults, rehearsal = Faults(), Rehearsal(self.incoming.trimmer)
        trimming, ledger, prompt = self._weighed(reply, rehearsal, faults)
        rehearsal.spare = int(prompt.growth)
        first_seen = self.known.first_seen
        trimming.cut(ledger, prompt, Trigger.NORMAL, Gathered(), first_seen=first_seen, now=self.now)
        if rehearsal.made is not None and not faults.names:
            job.plan(rehearsal.made, self.known.ledger.decision)

    def _cluster(self, reply: Message | None, job: Job) -> None:
        """The clusters of what would be in the window of the next cut; those that there are take in what is new."""
        policy = self.incoming.trimmer
        if not isinstance(policy, Clusterer) or not job.wanted:
            return
        faults, clustering = Faults(), Clustering(policy)
        trimming, ledger, prompt = self._weighed(reply, clustering, faults)
        gathered = self.gatherer.there(self._longer(reply).chat.messages)
        live = sum(map(prompt.live, prompt.groups))
        before = self.clusters if self.clusters is not None and live <= ANEW * self.clusters.slots else None
        trimming.cut(ledger, prompt, Trigger.NORMAL, gathered, now=self.now, clusters=before)
        if clustering.made and not faults.names:
            job.clusters(Clusters(clustering.made, clustering.slots if before is None else before.slots))

    def _weighed(self, reply: Message | None, policy: Policy, faults: Faults) -> tuple[Trimming, Ledger, Prompt]:
        """The conversation with its reply under the committed ledger, as if a policy were to cut it."""
        route = replace(self.incoming.route, on_overflow=OnOverflow.PASSTHROUGH)  # nobody is there to be refused
        asked = replace(self.incoming, policy=policy, route=route)
        outcome = Outcome(route=asked.route, body=b"", audit_id="", stages=self.stages)
        trimming = Trimming(asked, self._longer(reply), self.counts, outcome, faults, self.gatherer, self.keys)
        ledger, prompt = trimming.weigh(self.known.ledger)
        return trimming, ledger, prompt

    def _longer(self, reply: Message | None) -> Reading:
        if reply is None:
            return self.reading
        chat = self.reading.chat
        groups = grouping.group((*chat.messages, reply), chat.groups, len(chat.messages))
        return replace(self.reading, chat=chat.followed(reply, groups), groups=groups)
