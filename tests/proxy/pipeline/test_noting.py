"""The pipeline's notes: summaries of what went, a model's where one is to be had, and recall between turns."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.plan import Plan, Summarize
from policies.types import Context, Need, Window
from proxy import wire
from proxy.conversations import Conversations
from proxy.conversations.notes import Note
from proxy.conversations.sealing import Sealer
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Action, Outcome
from proxy.route import Alternate, Route, Summaries, SummaryKind
from proxy.stores.memory import MemoryStore
from proxy.wire.chat import Message as Read
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.counted import total
from tests.proxy.dialogues import Message, assistant, body, dialogue, route, user, words
from tests.proxy.proxied import Start, post
from tests.validator import violations, worsened


@dataclass(frozen=True)
class Condenses:
    """Makes one summary of everything that may go."""

    name: ClassVar[str] = "condenses"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.SUMMARIES})

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        slots = tuple(slot.id for slot in window.slots if slot.evictable)
        if not slots or not context.summary_tokens:
            return Plan(self.name)
        return Plan(self.name, (Summarize(slots, "all of it", context.summary_tokens),))


@dataclass
class Writer:
    """A summariser that says what it is told to, or nothing."""

    text: str | None
    asked: list[tuple[Note, ...]] = field(default_factory=list)
    written: dict[tuple[int, ...], str] = field(default_factory=dict)

    async def write(
        self,
        settings: Summaries,
        messages: Sequence[Read],
        drafts: Sequence[Note],
        written: Mapping[tuple[int, ...], str],
    ) -> Mapping[Note, str]:
        self.asked.append(tuple(drafts))
        self.written = dict(written)
        if self.text is None:
            raise OSError("down")
        return dict.fromkeys(drafts, self.text) if self.text else {}


LLM = Summaries(kind=SummaryKind.LLM, upstream="small", model="small-1")


def condensing(**settings: Any) -> Route:
    base = route("fifo", window=1500, alternate_roles=Alternate.FREE, **settings)
    return Route(**{name: getattr(base, name) for name in Route.__slots__} | {"policy": Condenses()})


@dataclass
class Worker:
    """A pipeline with a memory."""

    pipeline: Pipeline
    through: Route

    async def send(self, messages: list[Message], *, end: bool = True) -> Outcome:
        outcome = await self.pipeline.run(Incoming(route=self.through, body=body(messages)))
        if end and outcome.turn is not None:
            await outcome.turn.end()
        return outcome


@asynccontextmanager
async def worker(through: Route, **parts: Any) -> AsyncIterator[Worker]:
    conversations = Conversations(MemoryStore(), salt=b"salt", ttl_s=60, seal=Sealer(bytes(32)))
    try:
        yield Worker(Pipeline(lambda chosen, _: chosen.window, conversations, **parts), through)
    finally:
        await conversations.close()


def sent(outcome: Outcome) -> list[Message]:
    messages: list[Message] = json.loads(outcome.body)["messages"]
    return messages


def summaries(outcome: Outcome) -> list[str]:
    return [
        message["content"]
        for message in sent(outcome)
        if str(message["content"]).startswith(("What remains of messages", "A model's summary"))
    ]


def rows(outcome: Outcome, action: str) -> list[dict[str, Any]]:
    record = outcome.record()
    slots: Any = record["slots"]
    return [row for row in slots if row["action"] == action]


TALK = [*dialogue(14)[:-1], user("What was question 2 about the anchor?")]


async def test_a_summary_stands_for_what_went_and_is_replayed_in_the_same_bytes() -> None:
    async with worker(condensing()) as proxy:
        first = await proxy.send(TALK)
        longer = [*TALK, assistant("It is at sea."), user("Thanks.")]
        second = await proxy.send(longer)

    (text,) = summaries(first)
    assert text.startswith("What remains of messages 2-")
    assert sent(second)[: len(sent(first))] == sent(first)
    assert worsened(TALK, sent(first)) == []
    assert first.tokens_after == total("gpt-4o", sent(first))
    assert second.tokens_after == total("gpt-4o", sent(second))
    assert first.slots_evicted == len(rows(first, "summarize")) - 1
    (note,) = [row for row in rows(first, "summarize") if row["index"] is None]
    assert note["id"] == "s2"
    assert note["messages"] == list(range(2, 2 + len(note["messages"])))
    assert note["tokens"] <= 150 + 64


async def test_a_second_cut_takes_the_first_summary_in() -> None:
    async with worker(condensing()) as proxy:
        await proxy.send(TALK)
        longer = TALK
        while True:
            longer = [*longer, assistant(words(50, len(longer))), user(words(50, len(longer) + 1))]
            outcome = await proxy.send(longer)
            if outcome.trigger is not None:
                break

    (text,) = summaries(outcome)
    before, note = [row for row in rows(outcome, "summarize") if row["index"] is None]
    assert before["id"] == note["id"] == "s2"
    assert set(before["messages"]) < set(note["messages"])
    assert worsened(longer, sent(outcome)) == []
    assert text.startswith("What remains of messages 2-")


async def test_a_models_summary_is_used_stored_sealed_and_replayed() -> None:
    writer = Writer("Everything about berths was settled.")
    async with worker(condensing(summaries=LLM), summarizer=writer) as proxy:
        first = await proxy.send(TALK)
        second = await proxy.send([*TALK, assistant("It is at sea."), user("Thanks.")])

    (text,) = summaries(first)
    assert "A model's summary" in text
    assert "Everything about berths was settled." in text
    assert sent(second)[: len(sent(first))] == sent(first)
    assert first.tokens_after == total("gpt-4o", sent(first))
    assert len(writer.asked) == 1, "paid for once"
    assert first.faults == []


async def test_a_models_next_summary_is_made_of_its_last_one() -> None:
    writer = Writer("Everything about berths was settled.")
    async with worker(condensing(summaries=LLM), summarizer=writer) as proxy:
        first = await proxy.send(TALK)
        longer = TALK
        while len(writer.asked) < 2:
            longer = [*longer, assistant(words(50, len(longer))), user(words(50, len(longer) + 1))]
            second = await proxy.send(longer)

    assert writer.written == {first.notes_made[0].note.covers: "Everything about berths was settled."}
    assert set(first.notes_made[0].note.covers) < set(second.notes_made[0].note.covers)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(None, ["summarizer"], id="down"),
        pytest.param("", ["summarizer"], id="late"),
        pytest.param(words(3000), [], id="longer than what it replaces"),
    ],
)
async def test_without_the_models_summary_there_is_the_extractive_one(text: str | None, faults: list[str]) -> None:
    async with worker(condensing(summaries=LLM), summarizer=Writer(text)) as proxy:
        outcome = await proxy.send(TALK)

    assert summaries(outcome)[0].startswith("What remains of messages")
    assert outcome.action is Action.TRIMMED
    assert outcome.faults == faults


async def test_where_summaries_are_off_none_is_written() -> None:
    async with worker(condensing(summaries=Summaries(kind=SummaryKind.OFF))) as proxy:
        outcome = await proxy.send(TALK)

    assert summaries(outcome) == []
    assert rows(outcome, "summarize") == []


async def test_where_roles_must_alternate_a_summary_opens_the_next_users_message() -> None:
    strict = condensing()
    strict = Route(**{name: getattr(strict, name) for name in Route.__slots__} | {"alternate_roles": Alternate.STRICT})
    async with worker(strict) as proxy:
        outcome = await proxy.send(TALK)

    assert violations(sent(outcome)) == []
    assert [m["role"] for m in sent(outcome)[1:]] == ["user", "assistant"] * ((len(sent(outcome)) - 1) // 2) + ["user"]
    assert sum("What remains of messages" in str(message["content"]) for message in sent(outcome)) == 1
    assert outcome.tokens_after == total("gpt-4o", sent(outcome))


async def test_while_a_turn_is_in_flight_nothing_is_recalled() -> None:
    fact = user("The code of the red crane is QX-4471.")
    messages = [*TALK[:2], assistant("Yes?"), fact, assistant("Noted."), *TALK[3:]]
    async with worker(
        route("rwr", window=1500, alternate_roles=Alternate.FREE, protect_last=2, recall_budget=0.5)
    ) as proxy:
        cut = await proxy.send(messages)
        messages += [assistant("At sea."), user("And?")]
        running = await proxy.send(messages, end=False)
        messages += [assistant("Well."), user("What is the code of the red crane?")]
        held = await proxy.send(messages)
        assert running.turn is not None
        await running.turn.end()
        free = await proxy.send([*messages, assistant("?"), user("The code of the red crane, please?")])

    assert cut.trigger is not None
    assert held.action is Action.HELD
    assert held.notes_made == ()
    assert fact["content"] not in held.body.decode()
    assert fact["content"] in free.body.decode()


async def test_two_workers_that_decide_at_once_send_one_form() -> None:
    store = MemoryStore()
    both = [Conversations(store, salt=b"salt", ttl_s=60) for _ in range(2)]
    through = route("rwr", window=1200, recall_budget=0.3)
    pipelines = [Pipeline(lambda chosen, _: chosen.window, each) for each in both]
    outcomes = await asyncio.gather(*(p.run(Incoming(route=through, body=body(TALK))) for p in pipelines))
    for each in both:
        await each.close()

    assert outcomes[0].body == outcomes[1].body
    assert any(outcome.notes_made for outcome in outcomes)


def test_one_body_by_itself_is_trimmed_the_same_way_every_time() -> None:
    through = route("rwr", window=1200, recall_budget=0.3)
    outcomes = [
        Pipeline(lambda chosen, _: chosen.window).settle(Incoming(route=through, body=body(TALK))) for _ in range(2)
    ]

    assert outcomes[0].body == outcomes[1].body
    assert outcomes[0].notes_made
    assert outcomes[0].tokens_after == total("gpt-4o", sent(outcomes[0]))


async def test_a_recall_that_fails_costs_the_note_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError

    monkeypatch.setattr("proxy.pipeline.noting.recalled", broken)
    async with worker(route("rwr", window=1200, recall_budget=0.3)) as proxy:
        outcome = await proxy.send(TALK)

    assert outcome.action is Action.TRIMMED
    assert outcome.faults == ["recall"]
    assert outcome.notes_made == ()
    assert wire.parse(outcome.body).messages


class ByLength:
    """An embedder in whose eyes texts of one length are alike."""

    name = "length"

    def reads(self, text: str) -> bool:
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.floating]]:
        return [np.eye(1, 8, len(text) % 8, dtype=np.float32) for text in texts]

    def close(self) -> None:
        pass


async def test_the_configured_model_is_asked_through_its_upstream(
    start: Start, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the front door, with a policy that summarises clusters."""
    monkeypatch.setattr("proxy.embeddings.backends.SentenceTransformerEmbedder", lambda _: ByLength())

    async def handler(exchange: Exchange) -> None:
        if exchange.json["model"] == "small-1":
            text = (
                f"Summary {sum(each.json['model'] == 'small-1' for each in upstream.exchanges)}: berths were settled."
            )
        else:
            text = "An answer."
        reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
        await exchange.answer(json.dumps(reply).encode(), 200, ("Content-Type", "application/json"))

    upstream.handler = handler
    client = await start(
        "embeddings: {wait_ms: 10000}\n"
        "defaults: {window: 3000, reserve_output: 0, keep_prefix: 0, breathing_turns: 0, policy: semantic_cluster, "
        "recall: {budget: 0.3}, "
        "summaries: {kind: llm, upstream: fake, model: small-1}, alternate_roles: free}"
    )
    response = await post(client, body(TALK * 2), authorization="Bearer the-clients-own")

    asked = [each for each in upstream.exchanges if each.json["model"] == "small-1"]
    (forwarded,) = (each for each in upstream.exchanges if each.json["model"] == "gpt-4o")
    written = [m["content"] for m in forwarded.json["messages"] if "A model's summary" in str(m["content"])]
    assert response.status_code == 200
    assert "x-trimtab-faults" not in response.headers
    assert written
    assert all("berths were settled." in text for text in written)
    assert asked
    assert all(each.header("authorization") is None for each in asked), "a client's key is not for others"
