"""A model's summaries in the place of extractive ones, where a route wants them and they come in time."""

from dataclasses import dataclass

from proxy.conversations import Conversations
from proxy.conversations.identity import Chain
from proxy.conversations.ledger import Ledger
from proxy.guard import Faults
from proxy.pipeline.aside import Aside
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.pipeline.trimming import Trimming
from proxy.recall.summaries import Summarizer
from proxy.route import Mode, SummaryKind

LEASE_S = 5.0  # longer than the deadline of the work that a lease is for


@dataclass(frozen=True, slots=True)
class Summarising:
    """Has the summaries of one request written."""

    summarizer: Summarizer | None
    conversations: Conversations
    aside: Aside
    outcome: Outcome
    faults: Faults

    async def summarised(
        self, incoming: Incoming, chain: Chain, trimming: Trimming, before: Ledger, after: Ledger
    ) -> Ledger:
        """The ledger after a cut with what a model wrote; what fails or is late stays as it is."""
        settings = incoming.route.summaries
        drafts = trimming.noting.drafts(before, after)
        if settings.kind is not SummaryKind.LLM or not drafts or self.summarizer is None:
            return after
        if incoming.route.mode is Mode.SHADOW:
            return after
        with self.outcome.stages.stage("fulfil"), self.faults.guard("summarizer"):
            async with self.conversations.lease(chain[-1], settings.deadline_s + LEASE_S) as mine:
                if mine:
                    written = trimming.noting.written(before)
                    texts = await self.summarizer.write(settings, trimming.noting.messages, drafts, written)
                    seal = self.conversations.seal
                    sealed = {note: seal(text.encode("utf-8", "replace")) for note, text in texts.items()}
                    if len(texts) < len(drafts):
                        self.faults.note("summarizer")
                    return await self.aside(len(incoming.body), lambda: trimming.sealed(after, sealed))
        return after
