"""A note never reaches the next threshold: where the one that a prompt asks for would, the cut is made before it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.conversations import Conversations
from proxy.economics import Economy
from proxy.pipeline import Pipeline
from proxy.pipeline.budget import Trigger
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.route import Alternate, Route
from proxy.stores.memory import MemoryStore
from tests.proxy.dialogues import Message, assistant, body, route, system, user, words

WINDOW = 2000
FACT = "The gate code of warehouse nine is QX-4471."
ASKED = "Which gate code did I tell you for warehouse nine?"
THROUGH = {"window": WINDOW, "alternate_roles": Alternate.FREE, "recall_budget": 0.4}


class Talk:
    """A conversation that grows, sent turn by turn."""

    def __init__(self, pipeline: Pipeline, through: Route, opening: list[Message]) -> None:
        self._pipeline = pipeline
        self._through = through
        self.messages = opening

    async def send(self, text: str) -> Outcome:
        self.messages = [*self.messages, user(text)]
        outcome = await self._pipeline.run(Incoming(route=self._through, body=body(self.messages)))
        if outcome.turn is not None:
            await outcome.turn.end()
        self.messages = [*self.messages, assistant(f"Noted. {words(30, len(self.messages))}.")]
        return outcome

    async def nearly_full(self) -> Outcome:
        """Go on until the fact has been dropped, and the prompt is a turn or two short of its next cut."""
        await self.send("Good morning.")
        await self.send(FACT)
        for number in range(100):
            outcome = await self.send(f"Report {number}. {words(30, number)}.")
            dropped = FACT.encode() not in outcome.body
            if dropped and outcome.trigger is None and 0.74 < (outcome.tokens_after or 0) / WINDOW < 0.8:
                return outcome
        pytest.fail("the prompt never came near the threshold")


@asynccontextmanager
async def talk(
    opening: str = "You help the harbour office.", policy: str = "hybrid", **settings: object
) -> AsyncIterator[Talk]:
    store = Conversations(MemoryStore(), salt=b"salt", ttl_s=60)
    through = route(policy, **{**THROUGH, **settings})
    try:
        yield Talk(Pipeline(lambda chosen, _: chosen.window, store), through, [system(opening)])
    finally:
        await store.close()


async def test_a_prompt_whose_note_would_reach_the_threshold_is_cut_first() -> None:
    async with talk() as going:
        before = await going.nearly_full()
        asked = await going.send(ASKED)
        after = await going.send(f"Report. {words(30)}.")

    assert before.tokens_after is not None
    assert (asked.trigger, asked.reason) == (Trigger.NORMAL, "note_reaches_threshold")
    assert FACT.encode() in asked.body
    assert [placed.note.kind.value for placed in asked.notes_made] == ["recall"]
    assert asked.target is not None
    assert (asked.tokens_after or 0) <= asked.target
    assert after.trigger is None, "the cut made room"


async def test_a_prompt_that_goes_on_is_not() -> None:
    async with talk() as going:
        await going.nearly_full()
        outcome = await going.send("Then please go on with the list.")

    assert outcome.trigger is None
    assert outcome.notes_made == ()


async def test_no_cut_is_made_that_would_leave_no_room_for_the_note() -> None:
    """What is pinned takes so much that the note would not fit after a cut either."""
    async with talk(f"You help the harbour office. {words(1000)}") as going:
        await going.nearly_full()
        outcome = await going.send(ASKED)

    assert (outcome.trigger, outcome.reason) == (None, None)


async def test_nor_for_a_policy_that_does_not_look_at_the_prompt() -> None:
    async with talk(policy="fifo") as going:
        await going.nearly_full()
        outcome = await going.send(ASKED)

    assert (outcome.trigger, outcome.reason) == (None, None)


async def test_where_no_cache_is_at_stake_a_cut_leaves_no_room_for_notes_that_nobody_asks_for() -> None:
    """The prompts of a conversation that merely goes on fill their target; with a cache notes will need their share."""
    found = {}
    for least in (0, 4096):
        async with talk(cache=Economy(min_tokens=least)) as going:
            sent = [await going.send(f"Report {number}. {words(30, number)}.") for number in range(40)]
        cuts = [outcome for outcome in sent if outcome.trigger is not None]
        found[least] = max(outcome.tokens_after or 0 for outcome in cuts)
        assert all((outcome.tokens_after or 0) <= (outcome.target or 0) for outcome in cuts)

    assert found[0] <= 0.35 * WINDOW
    assert found[4096] > 0.6 * WINDOW


async def test_where_no_cache_is_at_stake_each_prompt_may_have_all_that_notes_may_take() -> None:
    """The notes of earlier prompts have taken their share; a cut takes them away, and this one gets its own."""
    async with talk(cache=Economy(min_tokens=4096), options={"keep_said": 0.0}) as going:
        await going.nearly_full()
        first = await going.send(ASKED)
        second = await going.send(ASKED.replace("did I tell", "have I told"))

    for outcome in (first, second):
        assert FACT.encode() in outcome.body
        assert (outcome.tokens_after or 0) < 0.85 * WINDOW
