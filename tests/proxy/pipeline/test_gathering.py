"""What a decision needs is gathered within a time limit, and nothing is asked for twice."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from policies import clusters, registry
from proxy import wire
from proxy.conversations import Conversations
from proxy.conversations.background import Background
from proxy.embeddings import EmbedderMissing, Embeddings
from proxy.pipeline import Pipeline
from proxy.pipeline.gathering import Gathered, Gatherer, Units, last_user, similarities
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Action, Outcome
from proxy.pipeline.preparation import Preparation
from proxy.recall.library import Library
from proxy.route import Route, Targets
from proxy.stores.memory import MemoryStore
from proxy.tokens import counter
from proxy.wire import grouping
from proxy.wire.chat import Message
from tests.proxy.dialogues import Message as Json
from tests.proxy.dialogues import assistant, body, call, dialogue, route, system, user
from tests.proxy.proxied import Records, Start, post

DEEP = Targets(evict=0.55, emergency=0.50)  # so that hybrid goes by meaning
TOPICS = ("crane", "tide", "pilot")


class ByTopic:
    """An embedder whose vectors tell topics apart; it keeps what it was asked and may be held up or broken."""

    name = "topics"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None

    def reads(self, text: str) -> bool:
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.floating]]:
        self.go.wait(10)
        if self.error is not None:
            raise self.error
        self.asked += texts
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> NDArray[np.floating]:
        found = np.array([[topic in text.lower() for topic in TOPICS] + [True]], dtype=np.float32)
        made: NDArray[np.floating] = found / np.linalg.norm(found)
        return made

    def close(self) -> None:
        self.go.set()


@pytest.fixture
def embedder() -> ByTopic:
    return ByTopic()


@pytest.fixture
def embeddings(embedder: ByTopic) -> Iterator[Embeddings]:
    made = Embeddings(embedder)
    yield made
    embedder.go.set()
    made.close()


def read(messages: Sequence[Json]) -> tuple[Message, ...]:
    return wire.parse(body(messages)).messages


TALK = [
    system("A rule."),
    user("The crane is red."),
    *call(0, "High tide."),
    assistant("The pilot is Ida."),
    user("Which tide?"),
]


async def test_the_prompt_is_embedded_first_and_each_text_once(embedder: ByTopic, embeddings: Embeddings) -> None:
    gatherer = Gatherer(embeddings, Library(), wait_s=5)

    first = await gatherer.gather(read(TALK), dense=True)
    second = gatherer.wait(read([*TALK, assistant("The one at nine."), user("And the crane?")]), dense=True)

    assert sorted(first.vectors) == [1, 2, 3, 4, 5]
    assert first.query == 5
    assert (first.waited, first.late, first.without) == (5, 0, None)
    assert second.waited == 2, "a turn that adds two messages embeds two messages"
    assert embedder.asked[0] == "Which tide?"
    assert len(embedder.asked) == len(set(embedder.asked)) == 7
    assert "A rule." not in embedder.asked


async def test_what_is_late_is_done_without_and_made_for_the_next_time(
    embedder: ByTopic, embeddings: Embeddings
) -> None:
    gatherer = Gatherer(embeddings, Library(), wait_s=0.05)
    embedder.go.clear()

    late = await gatherer.gather(read(TALK), dense=True)
    embedder.go.set()
    async with asyncio.timeout(5):
        while (now := await gatherer.gather(read(TALK), dense=True)).late:
            pass

    assert (late.vectors, late.late, late.without) == ({}, 5, "vectors")
    assert now.without is None
    assert max(gatherer.relevances(read(TALK), late).values()) == 1.0, "by words"


async def test_what_a_request_has_taken_counts_into_its_time_limit(embedder: ByTopic, embeddings: Embeddings) -> None:
    library, done = Library(), []
    embedder.go.clear()
    async with asyncio.timeout(5):
        late = await Gatherer(embeddings, library, wait_s=60).gather(
            read(TALK), dense=True, spent_s=60, meanwhile=lambda: done.append("compared")
        )

    assert late.without == "vectors"
    assert done == ["compared"]
    assert all(library.has_read(message) for message in read(TALK)[1:]), "words are read while vectors are waited for"


async def test_where_no_vectors_are_of_use_nothing_is_embedded(embedder: ByTopic, embeddings: Embeddings) -> None:
    found = await Gatherer(embeddings, Library(), wait_s=5).gather(read(TALK), dense=False)

    assert (found.vectors, found.without) == ({}, None)
    assert embedder.asked == []


def test_relevance_is_by_words_and_vectors_and_leaves_instructions_out(embeddings: Embeddings) -> None:
    gatherer = Gatherer(embeddings, Library(), wait_s=5)
    messages = read([system("tide"), user("alpha crane"), assistant("beta"), user("gamma tide"), user("Which tide?")])
    dense = gatherer.relevances(messages, gatherer.wait(messages, dense=True))

    assert set(dense) == {1, 2, 3}
    assert max(dense, key=lambda i: dense[i]) == 3
    assert all(0 <= score <= 1 for score in dense.values())
    assert gatherer.relevances(read([assistant("alone")]), Gathered()) == {}


def test_a_slot_is_as_relevant_as_the_best_of_its_messages() -> None:
    groups = grouping.group(read(TALK))
    east, north = np.eye(1, 2, 0, dtype=np.float16), np.eye(1, 2, 1, dtype=np.float16)
    vectors = Units(groups, {1: east, 2: east, 3: north})

    assert similarities(groups, {1: 0.1, 2: 0.2, 3: 0.9, 4: 0.3}) == {"m1": 0.1, "m2": 0.9, "m4": 0.3}
    assert set(vectors) == {"m1", "m2"}
    assert ("m2" in vectors, "m4" in vectors, len(vectors)) == (True, False, 2)
    assert np.allclose(np.asarray(vectors["m2"]), [0.5**0.5, 0.5**0.5], atol=1e-3)
    assert np.asarray(vectors["m1"]).dtype == np.float32
    assert np.asarray(vectors["m1"]).shape == (2,)


def test_the_prompt_is_the_last_user_message() -> None:
    assert last_user(read([user("a"), user("b"), assistant("c")])) == 1
    assert last_user(read([assistant("c")])) is None


@pytest.mark.parametrize("policy", ["semantic", "semantic_cluster", "hybrid", "adaptive", "rwr"])
@pytest.mark.parametrize(
    "error", [OSError("down"), EmbedderMissing("no package"), None], ids=["down", "missing", "none"]
)
def test_a_request_goes_through_without_vectors_and_its_record_says_so(
    embedder: ByTopic, embeddings: Embeddings, policy: str, error: Exception | None
) -> None:
    embedder.error = error
    through = route(policy, window=1200)
    pipeline = Pipeline(lambda chosen, _: chosen.window, embeddings=embeddings if error is not None else None, wait_s=5)
    outcome = pipeline.settle(Incoming(route=through, body=body(dialogue(16))))

    assert outcome.action is Action.TRIMMED
    assert outcome.policy == policy
    assert outcome.faults == []
    waited = 33 if error is not None else 0
    assert outcome.record()["gathered"] == {"vectors": 0, "waited": waited, "late": 33, "without": "vectors"}


async def test_a_note_alone_needs_vectors_of_what_it_may_quote(embedder: ByTopic, embeddings: Embeddings) -> None:
    found = await Gatherer(embeddings, Library(), wait_s=5).gather(read(TALK), dense=True, only={1, 4})

    assert sorted(found.vectors) == [1, 4, 5]
    assert sorted(embedder.asked) == ["The crane is red.", "The pilot is Ida.", "Which tide?"]


class Desk:
    """A pipeline whose turns end when they are told to, and whose background work is waited for."""

    def __init__(self, embeddings: Embeddings) -> None:
        self.background = Background()
        self.preparation = Preparation(self.background)
        self.conversations = Conversations(MemoryStore(), salt=b"salt", ttl_s=60)
        self.embeddings = embeddings
        self.pipeline = Pipeline(
            lambda chosen, _: chosen.window, self.conversations, embeddings=embeddings, preparation=self.preparation
        )

    async def turn(self, through: Route, messages: Sequence[Json], reply: Json | None) -> Outcome:
        outcome = await self.pipeline.run(Incoming(route=through, body=body(messages)))
        assert outcome.turn is not None
        assert outcome.faults == []
        await outcome.turn.end()
        if outcome.prepare is not None:
            outcome.prepare(reply)
        async with asyncio.timeout(60):  # it has the lowest priority, and libraries to import
            while self.background.counts.busy or self.embeddings.stats.waiting:  # noqa: ASYNC110 - threads
                await asyncio.sleep(0.005)
        return outcome

    async def close(self) -> None:
        self.background.close()
        await self.conversations.close()


@pytest.fixture
async def desk(embeddings: Embeddings) -> AsyncIterator[Desk]:
    made = Desk(embeddings)
    yield made
    await made.close()


def tokens_of(messages: Sequence[Json]) -> int:
    return sum(map(counter("gpt-4o").message, read(messages)))


REPLIES = [pytest.param(assistant("The crane is free."), id="answered"), pytest.param(None, id="broken off")]


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize(("utilization", "embedded"), [(0.5, False), (0.8, True)], ids=["below warn", "from warn on"])
async def test_vectors_are_prepared_from_warn_on_when_the_turn_has_ended(
    embedder: ByTopic, desk: Desk, utilization: float, embedded: bool, reply: Json | None
) -> None:
    messages = dialogue(16)
    through = route("rwr", window=int(tokens_of(messages) / utilization))
    outcome = await desk.turn(through, messages, reply)

    expected = [*messages[1:], *([reply] if reply else [])]
    assert (desk.background.counts.done > 0) is embedded, "far below it nothing is even looked at"
    assert outcome.prepared == "none"
    assert sorted(embedder.asked) == sorted(m["content"] for m in expected if embedded)
    if embedded:
        assert messages[-1]["content"] in embedder.asked[:2], "the prompt first, and then the newest"


async def test_it_is_the_prompt_as_it_was_sent_that_counts(embedder: ByTopic, desk: Desk) -> None:
    """After a cut the conversation as the client has it is far over `warn`, and what is sent of it is not."""
    messages = dialogue(16)
    through = route("priority", window=int(tokens_of(messages) / 0.96))
    cut = await desk.turn(through, messages, assistant("Yes."))
    through = replace(through, policy=registry.create("rwr"))
    onward = await desk.turn(through, [*messages, assistant("Yes."), user("The crane?")], assistant("No."))

    assert cut.trigger is not None
    assert onward.trigger is None
    assert onward.utilization_before is not None
    assert onward.utilization_before > 0.9
    gone = set(outcome_texts(messages, cut))
    assert set(embedder.asked) <= {*gone, "The crane?"}, "for a note: what may come back, and the prompt"


def outcome_texts(messages: Sequence[Json], outcome: Outcome) -> list[str]:
    return [messages[int(id_[1:])]["content"] for id_ in outcome.fates]


async def test_a_turn_that_adds_two_messages_embeds_two(embedder: ByTopic, desk: Desk) -> None:
    messages, reply, prompt = dialogue(16), assistant("The crane is free."), user("Which crane?")
    through = route("hybrid", window=int(tokens_of([*messages, reply, prompt]) / 0.851), targets=DEEP)
    await desk.turn(through, messages, reply)
    before = len(embedder.asked)
    cut = await desk.turn(through, [*messages, reply, prompt], None)

    assert cut.trigger is not None
    assert cut.prepared == "parts"
    assert embedder.asked[before:] == ["Which crane?"], "the reply was known when its turn ended"


@pytest.mark.parametrize("policy", ["hybrid", "semantic_cluster"])
async def test_clusters_come_prepared_and_take_in_what_is_new(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    made: list[int] = []

    def counting(rows: NDArray[np.float32], k: int) -> list[int]:
        made.append(len(rows))
        return kmeans(rows, k)

    kmeans = clusters._kmeans
    monkeypatch.setattr(clusters, "_kmeans", counting)
    messages, added = dialogue(16, size=60), [assistant("The crane is free."), user("Which crane?")]
    whole = [*messages, *added, assistant("The red one."), user("And the tide?")]
    options = {"summaries": 0.3}
    through = route(policy, options, window=int(tokens_of(whole) / 0.851), targets=DEEP, recall_budget=0.3)
    await desk.turn(through, messages, added[0])
    first = len(made)
    await desk.turn(through, [*messages, *added], whole[-2])
    cut = await desk.turn(through, whole, None)

    assert first == 1
    assert len(made) == first, "what is new joins the nearest"
    assert cut.trigger is not None
    assert cut.window is not None
    assert any(slot.cluster is not None for slot in cut.window.slots)


class Broken:
    """An embedder that cannot work, now or ever."""

    name = "broken"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def reads(self, text: str) -> bool:
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.floating]]:
        raise self._error

    def close(self) -> None:
        pass


@pytest.mark.parametrize("policy", ["hybrid", "adaptive"])
@pytest.mark.parametrize(
    "error",
    [OSError("down"), EmbedderMissing("no model files"), MemoryError()],
    ids=["down", "absent", "out of memory"],
)
async def test_a_client_gets_its_answer_whatever_becomes_of_the_embedder(
    start: Start, records: Records, monkeypatch: pytest.MonkeyPatch, policy: str, error: Exception
) -> None:
    monkeypatch.setattr("proxy.embeddings.backends.SentenceTransformerEmbedder", lambda _: Broken(error))
    client = await start(f"defaults: {{window: 1200, reserve_output: 0, breathing_turns: 0, policy: {policy}}}")
    answers = [await post(client, body([*dialogue(16), user(f"And berth {n}?")])) for n in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert {answer.headers["x-trimtab-action"] for answer in answers} == {"trimmed"}
    found = await records.get(2)
    assert [record["gathered"]["without"] for record in found] == ["vectors", "vectors"]
    assert {record["policy"] for record in found} == {policy}
