"""The most messages and bytes that a route sends, in whole slots and beside the budget of tokens."""

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.errors import ClientError
from proxy.pipeline.thinning import may_exceed
from proxy.route import OnOverflow, Pins
from tests.cases.trimmed import Trimmed, trim
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import Message, agent, assistant, dialogue, route, system, user
from tests.proxy.proxied import Records, Start, post
from tests.proxy.talks import Talk, answering


def thinned(messages: list[Message], most: int, **settings: Any) -> Trimmed:
    return trim(messages, replace(route("priority", window=100_000), max_messages=most, **settings))


@pytest.mark.parametrize(("count", "trimmed"), [(19, False), (20, False), (21, True)])
def test_as_many_as_may_be_are_sent(count: int, trimmed: bool) -> None:
    messages = [user(f"{n} of them") for n in range(count)]

    found = thinned(messages, 20)

    assert found.outcome.changed is trimmed
    assert len(found.after) == (14 if trimmed else count)


def test_the_oldest_go_first_and_the_record_says_why() -> None:
    found = thinned(dialogue(15, size=5), 20)

    assert found.after == [*found.before[:3], *found.before[-len(found.after) + 3 :]], "the task stays, and its answer"
    reasons = {row["reason"] for row in found.record["slots"]}
    assert reasons >= {"the route sends at most 20 messages"}
    assert found.record["trigger"] == "normal"
    assert found.record["slots_evicted"] == len(found.record["slots"])


def test_calls_go_with_their_results() -> None:
    found = thinned(agent(30, size=2), 21)

    assert len(found.after) <= 14
    assert len(found.after) % 2 == 0


def test_protected_slots_go_where_the_others_are_not_enough() -> None:
    found = thinned([system(), *(user(f"{n}") for n in range(30))], 3, protect_last=25)

    assert len(found.after) <= 3
    assert found.after[-1] == found.before[-1]
    assert any("protected" in row["reason"] for row in found.record["slots"])


ONLY_PINNED = [*(system(f"rule {n}") for n in range(10)), user("now")]


def test_what_is_pinned_stays_and_the_record_says_that_it_is_too_much() -> None:
    found = thinned(ONLY_PINNED, 5)

    assert found.after == found.before
    assert found.record["action"] == "unfit"


def test_a_route_may_reject_what_stays_too_much() -> None:
    with pytest.raises(ClientError) as caught:
        thinned(ONLY_PINNED, 5, on_overflow=OnOverflow.REJECT)

    assert (caught.value.status, caught.value.code) == (400, "too_many_messages")
    assert "11 messages" in caught.value.message


def test_a_route_may_leave_protected_slots_alone() -> None:
    messages = [user(f"{n}") for n in range(20)]

    found = thinned(messages, 5, protect_last=15, on_overflow=OnOverflow.PASSTHROUGH, pins=Pins(first_user=False))

    assert found.after == messages[5:]
    assert found.record["action"] == "unfit"


def test_tokens_and_messages_are_cut_together() -> None:
    messages = dialogue(40, size=60)

    found = trim(messages, replace(route("priority", window=4000), max_messages=30))

    assert len(found.after) <= 21
    assert found.outcome.utilization_after is not None
    assert found.outcome.utilization_after <= 0.6


def test_bodies_that_cannot_have_too_many_are_not_read() -> None:
    ten = replace(route("fifo"), max_messages=10)
    assert [may_exceed(size, ten) for size in (130, 131)] == [False, True]
    assert not may_exceed(10**9, route("fifo"))
    smallest = json.dumps({"messages": [{"role": ""}] * 11}, separators=(",", ":"))
    assert may_exceed(len(smallest), ten)
    assert [may_exceed(size, replace(route("fifo"), max_bytes=100)) for size in (100, 101)] == [False, True]


async def test_a_conversation_keeps_its_form_between_two_cuts(start: Start, upstream: FakeUpstream) -> None:
    answering(upstream)
    client = await start("defaults: {window: 100000, max_messages: 20, keep_prefix: 0.2, policy: fifo}")
    talk = Talk(client, upstream, [system()])
    actions = []
    for n in range(40):
        sent = await talk.send(user(f"question {n}"))
        assert len(sent.messages) <= 20
        actions.append(sent.evicted)

    assert 4 <= sum(1 for evicted in actions if evicted) <= 14, "a cut makes room for several turns"


async def test_a_turn_in_flight_does_not_send_more(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await start("defaults: {window: 100000, max_messages: 6, hold: {wait_s: 0}}")
    messages = [m for n in range(6) for m in (user(f"q{n}"), assistant(f"a{n}"))]

    await post(client, json.dumps({"model": "gpt-4o", "messages": [*messages, user("now")]}).encode())

    assert len(upstream.last.json["messages"]) <= 6
    assert (await records.get())[0]["action"] == "trimmed"


def pictures(number: int, size: int) -> list[Message]:
    """Few tokens, many bytes."""
    url = "data:image/png;base64," + "A" * size
    seen = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]
    turns = (
        [{"role": "user", "content": [*seen, {"type": "text", "text": f"{n}"}]}, assistant("seen")]
        for n in range(number)
    )
    return [system(), *(message for turn in turns for message in turn), user("and now?")]


def fitted(messages: list[Message], most: int, **settings: Any) -> Trimmed:
    rules = {"max_bytes": most, "pins": Pins(first_user=False), **settings}
    return trim(messages, replace(route("fifo", window=100_000), **rules))


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_as_many_bytes_as_may_be_are_sent(spare: int) -> None:
    messages = pictures(10, 1000)
    size = len(fitted(messages, 10**9).content)

    found = fitted(messages, size + spare)

    assert found.outcome.changed is (spare < 0)
    assert len(found.outcome.body) <= size + spare


def test_the_oldest_pictures_go_down_to_the_share_of_a_cut() -> None:
    messages = pictures(20, 5000)

    found = fitted(messages, 60_000)

    assert 30_000 < len(found.outcome.body) <= 42_000
    assert found.after == [messages[0], *messages[-len(found.after) + 1 :]]
    assert {row["reason"] for row in found.record["slots"]} >= {"the route sends at most 60000 bytes"}


def test_what_is_no_message_counts_too() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 30_000, "parameters": {}}}]
    rules = replace(route("fifo", window=100_000), max_bytes=60_000, pins=Pins(first_user=False))

    found = trim(pictures(10, 5000), rules, tools=tools)

    assert 30_000 < len(found.outcome.body) <= 42_000


def test_a_picture_that_is_pinned_goes_to_the_upstream_for_its_answer() -> None:
    messages = [*pictures(2, 100)[:-1], pictures(1, 5000)[1]]

    found = fitted(messages, 3000)

    assert found.after[-1] == messages[-1]
    assert found.record["action"] == "unfit"


def test_a_route_may_reject_what_stays_too_large() -> None:
    with pytest.raises(ClientError) as caught:
        fitted([*pictures(2, 100)[:-1], pictures(1, 5000)[1]], 3000, on_overflow=OnOverflow.REJECT)

    assert (caught.value.status, caught.value.code) == (413, "request_too_large")
    assert "at most 3000" in caught.value.message
    assert "max_bytes" in caught.value.message


async def test_bytes_are_made_room_for_once_in_several_turns(start: Start, upstream: FakeUpstream) -> None:
    answering(upstream)
    client = await start("defaults: {window: 100000, max_bytes: 20000, policy: fifo, pin: {first_user: false}}")
    talk = Talk(client, upstream, [system()])
    cuts = 0
    for number in range(30):
        sent = await talk.send(pictures(1, 1500 + number)[1])
        assert len(upstream.last.body) <= 20_000
        cuts += bool(sent.evicted)

    assert 2 <= cuts <= 10
