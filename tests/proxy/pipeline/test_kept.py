"""Why slots stayed, as audit records say it, through the front door."""

from typing import Any

import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import assistant, body, call, dialogue, system, user, words
from tests.proxy.proxied import Records, Start, post

RULES = "window: 800, reserve_output: 0, breathing_turns: 0"


async def reasons(
    start: Start,
    records: Records,
    settings: str,
    messages: list[dict[str, Any]],
    policy: str = "fifo",
    **headers: str,
) -> Any:
    """The record of a cut, and the reasons of what it kept, by the slots' first message."""
    client = await start(f"defaults: {{{RULES}, policy: {policy}, {settings}}}")
    await post(client, body(messages), **headers)
    (record,) = await records.get()
    assert record["trigger"], "there was a cut"
    return record, {slot["messages"][0]: slot["reason"] for slot in record["slots"] if slot["action"] == "keep"}


@pytest.fixture(autouse=True)
def _all(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines with every slot, as the audit store has them."""
    monkeypatch.setattr("proxy.audit._changes", lambda record: record)


async def test_each_slot_that_stays_says_by_which_rule(start: Start, records: Records, upstream: FakeUpstream) -> None:
    record, kept = await reasons(
        start, records, "keep_prefix: 0.3, protect_last: 3, cache: {min_tokens: 0}", dialogue(12)
    )

    last = 2 * 12 + 1
    assert kept[0] == "pinned: instructions never go"
    assert kept[1] == "pinned: the task, the first user message (pin.first_user)"
    assert kept[2] == (
        "protected: the oldest, kept for the provider's cache (keep_prefix: 30% of the budget, 240 tokens at most)"
    )
    assert kept[last - 1] == "protected: one of the newest 3 slots (protect_last)"
    assert kept[last - 3] == "stayed: the target was reached without it"
    assert kept[last] == "pinned: the current prompt"
    assert record["rules"] == {
        "thresholds": {"evict": 0.85, "emergency": 0.95},
        "targets": {"evict": 0.7, "emergency": 0.6},
        "breathing_turns": 0,
        "keep_prefix": 0.3,
        "protect_last": 3,
        "on_overflow": "truncate",
    }


async def test_pins_of_the_route_and_of_the_client_are_told_apart(
    start: Start, records: Records, upstream: FakeUpstream
) -> None:
    messages = [
        system(),
        user("Where may she berth?"),
        *call(1, words(20), name="tide_table"),
        user(f"Mind the ice. {words(20)}"),
        assistant("I do."),
        user(f"Keep this. {words(20)}"),
        assistant("Yes."),
        *dialogue(12)[1:],
    ]
    rules = "keep_prefix: 0, protect_last: 0, pin: {tools: [tide_table], text: ['Mind the .ce']}"
    _, kept = await reasons(start, records, rules, messages, **{"x-trimtab-pin": "6"})

    assert kept[2] == "pinned: a call of tide_table (pin.tools)"
    assert kept[4] == "pinned: its text matches the route's pin.text"
    assert kept[6] == "pinned: no policy may take it (x-trimtab-pin, or a role that is not known)"
    assert 5 not in kept, "it was evicted"


async def test_a_task_that_is_too_large_to_be_pinned_says_so(
    start: Start, records: Records, upstream: FakeUpstream
) -> None:
    messages = [system(), user(words(240)), *dialogue(10)[2:]]

    _, kept = await reasons(start, records, "keep_prefix: 0, protect_last: 2", messages)

    assert kept[1] == "protected: the task, not pinned since it is over a quarter of the budget (pin.first_user)"


async def test_what_the_user_said_is_told_from_the_oldest(
    start: Start, records: Records, upstream: FakeUpstream
) -> None:
    settings, policy = "keep_prefix: 0.3, protect_last: 3", "{name: hybrid, keep_said: 0.2}"
    _, kept = await reasons(start, records, settings, dialogue(12), policy)

    said = "protected: what the user said, in a prompt too short to be cached (the policy's keep_said)"
    assert [index for index, reason in kept.items() if reason == said] == [21, 22], "it stays with its answer"
