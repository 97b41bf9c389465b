"""The next cut is planned while nobody waits, for what the client will send back, and used only where it serves."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from policies import registry
from policies.fifo import Fifo
from policies.plan import Evict, Plan, Summarize
from policies.types import Clusterer, Context, Slot, Window
from proxy.conversations.background import Background
from proxy.conversations.identity import chain
from proxy.pipeline.preparation import Clustering, Clusters, Job, Preparation, Rehearsal, serves
from proxy.wire.canonical import digest
from proxy.wire.chat import Message as Read
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import Message, assistant, system, user, words
from tests.proxy.held import bytes_of
from tests.proxy.proxied import Records, Start
from tests.proxy.talks import Talk, answering, chunks, dumped, size
from tests.validator import worsened

PLAN = Plan("fifo", (Evict("m1", None, "oldest"),))
REPLY = assistant("Berth 4.")


NOBODYS = Job(Preparation(Background()), b"nobody", b"nobody")


def request(*texts: str) -> tuple[bytes, ...]:
    return chain(b"root", [digest(user(text)) for text in texts])


def longer(first: tuple[bytes, ...], *messages: Message) -> tuple[bytes, ...]:
    return (*first, *chain(first[-1], [digest(message) for message in messages]))


class Planner:
    """Work that can be held up, and that counts how often it was done."""

    def __init__(self, plan: Plan | None = PLAN, decision: str = "") -> None:
        self.plan = plan
        self.decision = decision
        self.go = threading.Event()
        self.done = threading.Event()
        self.replies: list[Read | None] = []

    def __call__(self, reply: Read | None, job: Job) -> None:
        self.go.wait(5)
        self.replies.append(reply)
        if self.plan is not None:
            job.plan(self.plan, self.decision)
        self.done.set()


@pytest.fixture
def background() -> Any:
    made = Background()
    yield made
    made.close()


def settle(background: Background, planner: Planner) -> None:
    """Let the work be done, and what stands behind it."""
    planner.go.set()
    last = threading.Event()
    background.put(b"last", lambda wanted: last.set())
    assert last.wait(5)


def test_a_plan_is_found_by_whoever_goes_on_from_the_reply(background: Background) -> None:
    preparation, planner, first = Preparation(background), Planner(decision="d1"), request("a", "b")
    preparation.put(first, REPLY, planner)
    settle(background, planner)

    onward = longer(first, REPLY, user("And tomorrow?"))
    assert [reply and reply.text for reply in planner.replies] == ["Berth 4."]
    assert preparation.take(onward, "d1") == PLAN
    assert preparation.take(longer(onward, user("Or later?")), "d1") == PLAN
    assert preparation.take(onward, "d2") is None, "it was made under another ledger"
    assert preparation.take(longer(first, assistant("Berth 5."), user("And?")), "d1") is None, "another reply"
    assert preparation.take(first, "d1") is None


def test_what_makes_no_plan_leaves_none(background: Background) -> None:
    preparation, planner, first = Preparation(background), Planner(None), request("a")
    preparation.put(first, REPLY, planner)
    settle(background, planner)

    assert preparation.take(longer(first, REPLY), "") is None


@pytest.mark.parametrize("onward", [True, False], ids=["goes on", "asks again"])
@pytest.mark.parametrize("runs", [True, False], ids=["under way", "waiting"])
def test_when_a_turn_begins_the_work_on_its_conversation_is_thrown_away(
    background: Background, onward: bool, runs: bool
) -> None:
    preparation, planner, before, first = Preparation(background), Planner(), Planner(), request("a")
    if not runs:
        background.put(b"something else", lambda wanted: before(None, NOBODYS))
    preparation.put(first, REPLY, planner)
    preparation.begin(longer(first, REPLY, user("And?")) if onward else first)
    before.go.set()
    settle(background, planner)

    assert preparation.take(longer(first, REPLY, user("And?")), "") is None


def test_plans_are_kept_as_far_as_they_take_so_many_bytes(background: Background) -> None:
    long = Plan("fifo", tuple(Evict(f"m{n}", n / 7, f"the oldest but {n}") for n in range(100)))
    preparation, planner = Preparation(background, plan_bytes=150_000), Planner(long)
    planner.go.set()
    firsts = [request(str(number)) for number in range(9)]
    for first in firsts:
        preparation.put(first, REPLY, planner)
        settle(background, planner)

    kept = [preparation.take(longer(first, REPLY), "") for first in firsts]
    assert kept == [None] * 5 + [long] * 4
    assert bytes_of(preparation._made, without=[long]) < preparation.memories["plans"]().bytes <= 150_000
    planner.plan = Plan("fifo", long.actions * 3)
    preparation.put(firsts[0], REPLY, planner)
    settle(background, planner)
    assert preparation.take(longer(firsts[0], REPLY), "") is None, "one that is huge pushes nothing out"


def test_a_plan_takes_what_is_counted_of_it(background: Background) -> None:
    made = Plan(
        "hybrid",
        (
            *(
                Evict(f"m{n}", n / 7, f"priority {n}, used {n * n} turns ago by something else")
                for n in range(300, 400)
            ),
            *(
                Summarize(tuple(f"m{n}" for n in range(k, k + 40)), f"a topic of {k}", 500 + k)
                for k in range(400, 900, 40)
            ),
        ),
    )
    preparation, planner, first = Preparation(background), Planner(made), request("a")
    preparation.put(first, REPLY, planner)
    settle(background, planner)

    assert bytes_of(made) <= preparation.memories["plans"]().bytes <= 2 * bytes_of(made)


def test_so_many_conversations_are_prepared_for_at_a_time() -> None:
    with pytest.raises(ValueError, match="size: must be at least 1, got 0"):
        Preparation(Background(), size=0)


def test_clusters_hold_whatever_was_decided_and_their_work_goes_on_in_pieces(background: Background) -> None:
    preparation, first, made = Preparation(background), request("a", "b"), Clusters({"m1": 0}, 1)
    jobs: list[Job] = []
    preparation.put(first, None, lambda reply, job: jobs.append(job))
    settle(background, Planner())
    jobs[0].later(lambda: jobs[0].clusters(made))()
    settle(background, Planner())

    assert preparation.clusters(first) == made
    assert preparation.clusters(longer(first, REPLY, user("And?"))) == made
    assert preparation.clusters(request("a")) is None


def test_once_a_turn_begins_nothing_more_is_kept_or_begun(background: Background) -> None:
    preparation, first = Preparation(background), request("a")
    jobs: list[Job] = []
    preparation.put(first, REPLY, lambda reply, job: jobs.append(job))
    settle(background, Planner())
    preparation.begin(longer(first, REPLY, user("And?")))
    jobs[0].clusters(Clusters({"m1": 0}, 1))
    jobs[0].plan(PLAN, "")
    jobs[0].later(lambda: jobs.append(jobs[0]))()
    settle(background, Planner())

    onward = longer(first, REPLY)
    assert not jobs[0].wanted
    assert (preparation.clusters(onward), preparation.take(onward, ""), len(jobs)) == (None, None, 1)


def test_work_that_goes_on_later_is_thrown_away_when_a_turn_begins(background: Background) -> None:
    preparation, first, done = Preparation(background), request("a"), list[str]()
    jobs: list[Job] = []
    preparation.put(first, REPLY, lambda reply, job: jobs.append(job), 500)
    settle(background, Planner())
    resume = jobs[0].later(lambda: done.append("went on"))
    assert background.counts.bytes >= 500
    preparation.begin(longer(first, REPLY, user("And?")))
    assert (background.counts.bytes, background.counts.held) == (0, 0)
    resume()
    settle(background, Planner())

    assert done == []


def window(*tokens: int, pinned: int | None = None) -> Window:
    slots = tuple(
        Slot(id=f"m{n}", role="user", text="", tokens=count, turn=n, pinned=n == pinned)
        for n, count in enumerate(tokens)
    )
    return Window(slots=slots, budget=1000, used=sum(tokens))


def test_a_plan_serves_where_it_keeps_every_promise_and_reaches_the_target() -> None:
    assert serves(PLAN, window(100, 500, 100), 200, Context())
    assert not serves(PLAN, window(100, 500, 101), 200, Context()), "not deep enough"
    assert not serves(PLAN, window(100, 500, 100, pinned=1), 200, Context())
    assert not serves(PLAN, window(100), 200, Context()), "the slot is not there"


def test_a_rehearsal_leaves_room_for_what_is_to_come() -> None:
    rehearsal = Rehearsal(Fifo(), spare=100)

    assert len(rehearsal.plan(window(100, 100, 100, 100), 300, Context()).actions) == 2
    assert rehearsal.made is not None


@pytest.mark.parametrize("policy", ["hybrid", "semantic_cluster"])
def test_clusters_are_asked_for_without_a_cut(policy: str) -> None:
    chosen = registry.create(policy, {"summaries": 0.3})
    assert isinstance(chosen, Clusterer)
    seen = window(*[200] * 12, pinned=0)
    clustering = Clustering(chosen)

    assert clustering.plan(seen, 1200, Context(summary_tokens=200)).actions == ()
    assert clustering.slots == 12
    assert set(clustering.made) == {f"m{n}" for n in range(12)}, "what may go once the next prompt has come"
    assert clustering.needs == chosen.needs


def settings(policy: str) -> str:
    return f"defaults: {{window: 2000, reserve_output: 0, policy: {policy}, breathing_turns: 0}}"


async def prepared(records: Records, count: int) -> list[str]:
    return [record["prepared"] for record in await records.get(count) if record["trigger"]]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be done in the background is done before the answer ends, so that nothing has to be waited for."""

    def put(self: Background, conversation: bytes, work: Callable[[Callable[[], bool]], None], size: int = 0) -> bool:
        work(lambda: True)
        return True

    monkeypatch.setattr(Background, "put", put)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [("fifo", "plan"), ("priority", "plan"), ("clear_tool_results", "plan"), ("token_cost", "none")],
)
async def test_a_cut_takes_the_plan_that_was_made_after_the_turn_before(
    start: Start, upstream: FakeUpstream, records: Records, policy: str, expected: str, stream: bool
) -> None:
    answering(upstream)
    talk = Talk(await start(settings(policy)), upstream, [system(), user("Which berth?")], {"stream": stream})
    await talk.send()
    for number in range(16):
        length = len(talk.messages)
        sent = await talk.send(user(f"Question {number}: {words(100, number)}?"))
        assert worsened(talk.messages[: length + 1], sent.messages) == []
        assert size(sent.raw) <= 0.85 * 2000

    made = await prepared(records, 17)
    assert made
    assert set(made) == {expected}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("new", "headers"),
    [
        pytest.param(user(words(600)), {}, id="an emergency, which needs a deeper cut"),
        pytest.param(user(words(150)), {"x-trimtab-pin": "2"}, id="a pin on what would have gone"),
    ],
)
async def test_a_plan_that_does_not_serve_is_made_anew(
    start: Start, upstream: FakeUpstream, records: Records, new: Message, headers: dict[str, str]
) -> None:
    answering(upstream)
    talk = Talk(await start(settings("fifo")), upstream, near_a_cut())
    await talk.send()
    sent = await talk.send(new, **headers)

    assert sent.evicted > 0
    assert size(sent.raw) <= 0.7 * 2000
    assert await prepared(records, 2) == ["none"]
    if headers:
        assert dumped(talk.messages[2])[0] in sent.raw


def near_a_cut() -> list[Message]:
    """Over the threshold of warning, and a question away from that of a cut."""
    messages = [system(), user("Which berth?")]
    while size(dumped(*messages)) < 1620:
        messages += [assistant(f"{len(messages)}: {words(30)}."), user(f"{len(messages)}: {words(30)}?")]
    return messages


TEXT = {"role": "assistant", "content": "Berth 4 is free – take it.", "refusal": None, "annotations": []}
FUNCTION = {"name": "look_up", "arguments": '{"berth": 4, "port": "Gdańsk"}'}
CALLING = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "tool_calls": [{"id": "call_4", "type": "function", "function": FUNCTION}],
}


def openai_python(message: Message) -> Message:
    """`message.model_dump()`; with the object itself the SDK leaves out what was not set."""
    unset = {"audio": None, "function_call": None, "tool_calls": None}
    return {**unset, **message}


def langchain(message: Message) -> Message:
    """Arguments are parsed and dumped again; content is null beside calls."""
    calls = [{**call, "function": respelled(call, ensure_ascii=False)} for call in message.get("tool_calls", ())]
    said: Message = {"content": message["content"] or None, "role": "assistant"}
    return {**said, "tool_calls": calls} if calls else said


def vercel(message: Message) -> Message:
    """Arguments as JSON.stringify writes them; content is an empty string beside calls."""
    calls = [
        {"id": call["id"], "type": "function", "function": respelled(call, ensure_ascii=False, separators=(",", ":"))}
        for call in message.get("tool_calls", ())
    ]
    said: Message = {"role": "assistant", "content": message["content"] or ""}
    return {**said, "tool_calls": calls} if calls else said


def pydantic_ai(message: Message) -> Message:
    """Calls with arguments as they came, before the content."""
    said: Message = {"role": "assistant"}
    if calls := message.get("tool_calls"):
        said["tool_calls"] = calls
    return {**said, "content": message["content"]}


def respelled(call: Message, **how: Any) -> Message:
    function = call["function"]
    return {"name": function["name"], "arguments": json.dumps(json.loads(function["arguments"]), **how)}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("reply", [TEXT, CALLING], ids=["a text", "a call"])
@pytest.mark.parametrize("echo", [openai_python, langchain, vercel, pydantic_ai])
async def test_what_clients_send_back_is_the_reply_that_was_seen(
    start: Start,
    upstream: FakeUpstream,
    records: Records,
    echo: Callable[[Message], Message],
    reply: Message,
    stream: bool,
) -> None:
    async def handler(exchange: Exchange) -> None:
        if stream:
            await exchange.sse(*(json.dumps(chunk) for chunk in chunks(reply, 0)))
            return
        choice = {"index": 0, "message": reply, "finish_reason": "stop"}
        whole = json.dumps({"id": "0", "object": "chat.completion", "choices": [choice]})
        await exchange.answer(whole.encode(), 200, ("Content-Type", "application/json"))

    upstream.handler = handler
    talk = Talk(await start(settings("fifo")), upstream, near_a_cut(), {"stream": stream})
    await talk.send()
    results = [{"role": "tool", "tool_call_id": "call_4", "content": words(60)}] if reply is CALLING else []
    talk.messages[-1] = echo(reply)
    await talk.send(*(results or [user(words(60))]))

    assert await prepared(records, 2) == ["plan"], "the plan stands under the digest of the reply"
