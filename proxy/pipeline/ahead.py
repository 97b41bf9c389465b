"""The plan of a conversation's next cut, made before anybody asks for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from policies.plan import Plan
from policies.types import reads_prompt
from proxy.conversations.identity import Chain
from proxy.conversations.known import Known
from proxy.conversations.notes import Keys
from proxy.guard import Faults
from proxy.pipeline.budget import Trigger
from proxy.pipeline.gathering import Gathered, Gatherer
from proxy.pipeline.intake import Incoming, Reading
from proxy.pipeline.outcome import Outcome, Stages
from proxy.pipeline.preparation import MOST_BYTES, Preparation, Rehearsal
from proxy.pipeline.trimming import Trimming
from proxy.route import OnOverflow
from proxy.tokens import Cache
from proxy.wire import grouping
from proxy.wire.chat import Message


def plannable(incoming: Incoming) -> bool:
    """Whether the next cut can be planned: the policy does not look at the prompt, and nothing is asked for apart."""
    own = incoming.pins or incoming.refused is not None
    return not own and len(incoming.body) <= MOST_BYTES and not reads_prompt(incoming.trimmer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans what comes after a request that was sent under the ledger of `known`. `now` is in unix seconds."""

    incoming: Incoming
    reading: Reading
    known: Known
    counts: Cache
    gatherer: Gatherer
    keys: Keys
    stages: Stages
    now: float

    def put(self, preparation: Preparation, chain: Chain, reply: Mapping[str, Any]) -> None:
        """Have the plan made in the background, now that the reply is known."""
        preparation.put(chain, reply, self.known.ledger.decision, self.plan)

    def plan(self, reply: Message) -> Plan | None:
        """The next normal cut, with room for one turn more; None below the threshold `warn`, or where it fails."""
        rehearsal = Rehearsal(self.incoming.trimmer)
        route = replace(self.incoming.route, on_overflow=OnOverflow.PASSTHROUGH)  # nobody is there to be refused
        asked = replace(self.incoming, policy=rehearsal, route=route)
        chat = self.reading.chat
        groups = grouping.group((*chat.messages, reply), chat.groups, len(chat.messages))
        longer = replace(self.reading, chat=chat.followed(reply, groups), groups=groups)
        outcome = Outcome(route=asked.route, body=b"", audit_id="", stages=self.stages)
        faults = Faults()
        trimming = Trimming(asked, longer, self.counts, outcome, faults, self.gatherer, self.keys)
        ledger, prompt = trimming.weigh(self.known.ledger)
        if prompt.used < asked.route.thresholds.warn * longer.budget.tokens:
            return None
        rehearsal.spare = int(prompt.growth)
        first_seen = self.known.first_seen
        trimming.cut(ledger, prompt, Trigger.NORMAL, Gathered(), first_seen=first_seen, now=self.now)
        return None if faults.names else rehearsal.made
