"""Decisions stick: between two cuts a conversation's prompt only grows, in the very same bytes."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import Message, system, user, words
from tests.proxy.proxied import Records, Start
from tests.proxy.talks import Sent, Talk, answering, dumped, size
from tests.validator import violations

WINDOW = 2000
EVICT, TARGET = 0.85 * WINDOW, 0.70 * WINDOW
TOOLS: list[Any] = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


def settings(policy: str = "fifo", more: str = "") -> str:
    fixed = "reserve_output: 0, breathing_turns: 0, recall: {budget: 0}"
    return f"defaults: {{window: {WINDOW}, policy: {policy}, {fixed}{more}}}"


def question(number: int) -> Message:
    return user(f"Question {number}: {words(120, number)}?")


def result(talk: Talk) -> Message:
    """The answer to the call that the conversation ends with."""
    (call,) = talk.messages[-1]["tool_calls"]
    number = int(call["id"].removeprefix("call_"))
    return {"role": "tool", "tool_call_id": call["id"], "content": f"Result {number}: {words(120, number)}"}


async def steps(talk: Talk, count: int) -> list[Sent]:
    """`count` more requests of a conversation: questions, or results of what was called."""
    sent = []
    for _ in range(count):
        called = talk.messages[-1].get("tool_calls")
        new = [result(talk)] if called else [question(len(talk.messages))] if talk.messages[2:] else []
        sent.append(await talk.send(*new))
    return sent


def opening(client: httpx2.AsyncClient, upstream: FakeUpstream, kind: str, *, stream: bool = False) -> Talk:
    answering(upstream)
    fields: dict[str, Any] = {"stream": True} if stream else {}
    if kind == "agent":
        fields["tools"] = TOOLS
    return Talk(client, upstream, [system(), user("Find out which berth the Halcyon may use.")], fields)


@pytest.mark.parametrize(
    ("kind", "stream"), [("dialogue", False), ("agent", True)], ids=["dialogue", "agent, streamed"]
)
@pytest.mark.parametrize("policy", ["fifo", "lru_token", "priority", "clear_tool_results"])
async def test_a_prompt_only_grows_until_it_reaches_the_next_threshold(
    start: Start, upstream: FakeUpstream, records: Records, policy: str, kind: str, stream: bool
) -> None:
    talk = opening(await start(settings(policy)), upstream, kind, stream=stream)
    fields = {"tools": TOOLS} if kind == "agent" else {}
    before: tuple[bytes, ...] = ()
    known = 0
    cuts = 0
    for number in range(22):
        called = talk.messages[-1].get("tool_calls")
        new = [result(talk)] if called else [question(number)] if number else []
        length = len(talk.messages) + len(new)
        sent = await talk.send(*new)
        grown = (*before, *dumped(*talk.messages[known:length]))
        if size(grown, **fields) < EVICT:
            assert sent.raw == grown, "not a byte of what was sent before has changed"
            assert sent.evicted == 0
        else:
            cuts += 1
            assert size(sent.raw, **fields) <= TARGET
            left = iter(grown)
            kept = [raw for raw in sent.raw if b"Result removed" not in raw]
            assert all(raw in left for raw in kept), "what was dropped does not come back, nothing moves"
        assert violations(sent.messages) == []
        if (counted := sent.response.headers.get("x-trimtab-tokens-after")) is not None:
            assert int(counted) == size(sent.raw, **fields)
        before, known = sent.raw, length
    assert cuts >= 2, "or there is nothing to see here"
    decisions = await records.get(22)
    assert sum(record["trigger"] is not None for record in decisions) == cuts


async def test_what_overflow_shortened_is_sent_again_in_the_same_bytes(start: Start, upstream: FakeUpstream) -> None:
    talk = opening(await start(settings()), upstream, "agent")
    await talk.send()
    (call,) = talk.messages[-1]["tool_calls"]
    giant = {"role": "tool", "tool_call_id": call["id"], "content": "start " + words(4000) + " end"}

    first = await talk.send(giant)
    later = await steps(talk, 2)

    assert "characters left out here" in first.messages[-1]["content"]
    assert all(sent.raw[: len(first.raw)] == first.raw for sent in later)


async def cut(talk: Talk) -> Sent:
    """Let a conversation grow until it was cut, and by one more request, which is given."""
    while not (await steps(talk, 1))[0].evicted:
        pass
    (sent,) = await steps(talk, 1)
    assert sent.action == "trimmed"
    assert sent.evicted == 0
    return sent


def grown(before: Sent, *new: Message) -> tuple[bytes, ...]:
    return (*before.raw, *dumped(*new))


async def test_branches_share_the_past_up_to_where_they_part(start: Start, upstream: FakeUpstream) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    last = await cut(talk)
    answer = talk.messages[-1]
    branch = talk.branch()
    other = user("Something else altogether?")

    onward = await branch.send(other)
    await cut(branch)
    again = await talk.send(question(99))

    assert onward.raw == grown(last, answer, other)
    assert again.raw == grown(last, answer, question(99)), "a cut of the branch is not one of the trunk"


async def test_a_regeneration_is_sent_in_the_same_bytes(start: Start, upstream: FakeUpstream, records: Records) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    while not (sent := (await steps(talk, 1))[0]).evicted:
        pass

    regenerated = await talk.branch(-1).send()
    reworded = await talk.branch(-2).send(user("Or rather this?"))

    assert regenerated.exchange.body == sent.exchange.body
    assert regenerated.evicted == 0, "what is replayed is not decided again"
    assert reworded.exchange.body != sent.exchange.body
    *_, cutting, replaying, other = await records.get(len(upstream.exchanges))
    assert replaying["replayed"] == {"slots": cutting["slots_evicted"], "audit_id": cutting["audit_id"]}
    assert (cutting["ledger"], replaying["ledger"]) == ("none", "replayed")
    assert other["ledger"] == "none", "the cut was made for a prompt that is no longer there"


async def test_an_edit_before_a_cut_leaves_that_cut_behind(start: Start, upstream: FakeUpstream) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    last = await cut(talk)
    edited = talk.branch(-1)
    edited.messages[3] = {**edited.messages[3], "content": "An earlier question, put better?"}

    sent = await edited.send()

    assert sent.evicted > 0, "its own decision"
    assert (await talk.branch(-1).send()).raw == last.raw


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"authorization": "Bearer key-1"}, {"authorization": "Bearer key-2"}, id="two keys"),
        pytest.param({"x-trimtab-session": "a"}, {"x-trimtab-session": "b"}, id="two sessions"),
        pytest.param({"x-trimtab-session": "a"}, {}, id="a session and none"),
    ],
)
async def test_two_users_with_the_same_opening_have_pasts_of_their_own(
    start: Start, upstream: FakeUpstream, records: Records, one: dict[str, str], other: dict[str, str]
) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    talk.headers |= one
    last = await cut(talk)
    namesake = talk.branch(-1)
    namesake.headers = other

    first = await namesake.send()
    second = await talk.branch(-1).send()

    assert first.evicted > 0
    assert second.exchange.body == last.exchange.body
    *_, of_first, of_second = await records.get(len(upstream.exchanges))
    assert (of_first["ledger"], of_second["ledger"]) == ("none", "replayed")
    assert of_first["conversation"] != of_second["conversation"]


async def test_a_client_that_compacts_its_history_begins_anew_and_what_it_wrote_is_sent(
    start: Start, upstream: FakeUpstream
) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    await cut(talk)
    summary = user("Summary so far: the Halcyon wants a berth with a crane.")
    compacted = Talk(talk.client, upstream, [talk.messages[0], summary, *talk.messages[-4:]])

    sent = await compacted.send(question(50))

    assert sent.raw == dumped(*compacted.messages[:-1])
    later = await cut(compacted)
    assert dumped(summary)[0] in later.raw, "the task of the new beginning"


def shuffled(message: Message) -> Message:
    """The same message with its keys the other way round, and nothing where there was nothing."""
    return {key: message[key] for key in reversed(message)} | {"refusal": None, "annotations": None}


def in_parts(message: Message) -> Message:
    if not isinstance(message.get("content"), str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def respelled(message: Message) -> Message:
    """Arguments dumped anew, as LangChain does."""
    if not message.get("tool_calls"):
        return message
    calls = json.loads(json.dumps(message["tool_calls"]))
    for call in calls:
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"))
    return {**message, "content": "", "tool_calls": calls}


@pytest.mark.parametrize("kind", ["dialogue", "agent"])
@pytest.mark.parametrize("rewrite", [shuffled, in_parts, respelled])
async def test_a_client_that_writes_its_history_another_way_finds_its_past(
    start: Start, upstream: FakeUpstream, records: Records, rewrite: Callable[[Message], Message], kind: str
) -> None:
    talk = opening(await start(settings()), upstream, kind)
    last = await cut(talk)
    there = [index for index, raw in enumerate(dumped(*talk.messages[:-1])) if raw in last.raw]
    talk.messages = [rewrite(message) for message in talk.messages]
    new = result(talk) if kind == "agent" else question(99)

    sent = await talk.send(new)

    length = len(talk.messages) - 1
    assert sent.raw == dumped(*(talk.messages[index] for index in (*there, length - 2, length - 1)))
    *_, before, after = await records.get(len(upstream.exchanges))
    assert after["conversation"] == before["conversation"]
    assert after["replayed"] == before["replayed"]


async def test_a_pin_brings_back_what_was_dropped_as_long_as_it_is_sent(start: Start, upstream: FakeUpstream) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    last = await cut(talk)
    dropped = next(i for i, raw in enumerate(dumped(*talk.messages)) if raw not in last.raw)
    answer = talk.messages[-1]

    pinned = await talk.send(user("And?"), **{"x-trimtab-pin": str(dropped)})
    between = talk.messages[-1]
    unpinned = await talk.send(user("So?"))

    assert dumped(talk.messages[dropped])[0] in pinned.raw
    assert [raw for raw in pinned.raw if raw != dumped(talk.messages[dropped])[0]] == [
        *grown(last, answer, user("And?"))
    ]
    assert unpinned.raw == grown(last, answer, user("And?"), between, user("So?"))


async def test_what_surely_fits_another_model_goes_whole_and_the_cut_is_found_again(
    start: Start, upstream: FakeUpstream
) -> None:
    """Nothing is counted or looked up for it, and so nothing is dropped."""
    rules = "policy: fifo, reserve_output: 0, breathing_turns: 0, recall: {budget: 0}"
    client = await start(f"defaults: {{{rules}}}")
    talk = opening(client, upstream, "dialogue")
    talk.fields["model"] = "gpt-4"  # 8,192 tokens
    last = await cut(talk)
    answer = talk.messages[-1]

    talk.fields["model"] = "gpt-4o"  # 128,000
    larger = await talk.send(question(1))
    between = talk.messages[-1]
    talk.fields["model"] = "gpt-4"
    again = await talk.send(user("And then?"))

    assert larger.raw == dumped(*talk.messages[:-3])
    assert larger.action == "pass"
    assert "x-trimtab-tokens-before" not in larger.response.headers
    assert again.raw == grown(last, answer, question(1), between, user("And then?"))


OVERRIDES = settings("fifo", ", allow_overrides: true")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"x-trimtab-bypass": "1"}, id="bypass"),
        pytest.param({"x-trimtab-policy": "priority"}, id="another policy"),
        pytest.param({"x-trimtab-budget": "900"}, id="another budget"),
    ],
)
async def test_a_request_by_other_rules_leaves_the_conversation_as_it_was(
    start: Start, upstream: FakeUpstream, headers: dict[str, str]
) -> None:
    talk = opening(await start(OVERRIDES), upstream, "dialogue")
    last = await cut(talk)
    answer = talk.messages[-1]

    aside = await talk.branch().send(question(70), **headers)
    plain = await talk.send(question(70))

    assert aside.raw != plain.raw
    assert plain.raw == grown(last, answer, question(70))


@pytest.mark.parametrize(
    "headers", [{"x-trimtab-policy": "priority"}, {"x-trimtab-budget": "900"}], ids=["policy", "budget"]
)
async def test_an_overridden_conversation_sticks_to_what_was_decided_by_its_own_rules(
    start: Start, upstream: FakeUpstream, headers: dict[str, str]
) -> None:
    talk = opening(await start(OVERRIDES), upstream, "dialogue")
    talk.headers |= headers
    last = await cut(talk)
    answer = talk.messages[-1]

    assert (await talk.send(user("And?"))).raw == grown(last, answer, user("And?"))


async def test_shadow_keeps_a_ledger_that_never_shows(start: Start, upstream: FakeUpstream, records: Records) -> None:
    talk = opening(await start(settings("fifo", ", mode: shadow")), upstream, "dialogue")
    sent = await steps(talk, 20)

    for number, one in enumerate(sent, 1):
        assert one.raw == dumped(*talk.messages[: 2 * number])
    decisions = await records.get(20)
    first = next(number for number, record in enumerate(decisions) if record["trigger"])
    assert decisions[first + 1]["trigger"] is None
    assert decisions[first + 1]["replayed"]["audit_id"] == decisions[first]["audit_id"]


async def test_the_cached_prefix_is_what_the_request_before_sent(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    talk = opening(await start(settings()), upstream, "dialogue")
    sent = await steps(talk, 20)

    decisions = await records.get(20)
    counted = [number for number in range(1, 20) if decisions[number]["cache_prefix_tokens"] is not None]
    assert len(counted) > 4
    for number in counted:
        before, after = sent[number - 1].raw, sent[number].raw
        shared = next((i for i, (x, y) in enumerate(zip(before, after, strict=False)) if x != y), len(before))
        assert decisions[number]["cache_prefix_tokens"] == size(after[:shared])
