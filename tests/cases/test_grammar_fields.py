"""Group A, fields and parts that nobody here knows: kept, counted, never edited (A22, A23, A25)."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy.pipeline.outcome import Action
from proxy.route import OnOverflow
from tests.cases.histories import stamped
from tests.cases.shapes import calls, every_policy, result
from tests.cases.trimmed import trim
from tests.proxy.counted import total
from tests.proxy.dialogues import Message, assistant, call, dialogue, route, system, user, words

# A22, A23, A25: fields and parts that nobody here knows

THOUGHTS: dict[str, Message] = {
    "reasoning_content": {"reasoning_content": "Because the tide is out.\u00e9"},
    "reasoning": {"reasoning": "Because.", "reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA=="}]},
    "details": {"reasoning_details": [{"type": "x", "signature": "s/+="}]},
    "signature": {"thought_signature": "opaque=="},
    "nested": {"provider": {"deep": [{"er": 1.50}]}},
    "audio": {"audio": {"id": "audio_1"}},
    "annotations": {"annotations": [{"type": "url_citation"}], "refusal": None},
}


@pytest.mark.parametrize("thoughts", THOUGHTS)
@every_policy
def test_unknown_fields_of_kept_messages_survive(policy: str, thoughts: str) -> None:
    """A22: on an assistant turn inside the current tool loop and on one before it."""
    extra = THOUGHTS[thoughts]
    loop = [calls(1, content="", **extra), result(1, "r"), calls(2, **extra), result(2, "r2")]
    messages = stamped([*dialogue(9)[:-1], {**assistant("before"), **extra}, user("q"), *loop])

    found = trim(messages, route(policy, window=450, protect_last=4))

    kept = [m for m in found.after if m["x_at"] >= len(messages) - 4]
    assert kept == messages[-4:]
    assert all(message in messages for message in found.after)


def test_thoughts_count_in_what_a_message_costs() -> None:
    """A22: text that providers feed back to the model is part of the price of its slot."""
    plain = total("gpt-4o", [user("q"), assistant("a")])
    long = words(500)

    for extra in (
        {"reasoning_content": long},
        {"reasoning": long},
        {"reasoning_details": [{"type": "reasoning.text", "text": long}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": long}]},
        {"refusal": long},
    ):
        assert total("gpt-4o", [user("q"), {**assistant("a"), **extra}]) >= plain + 490, extra


BLOCKS: dict[str, list[dict[str, Any]]] = {
    "thinking": [{"type": "thinking", "thinking": "..", "signature": "sig=="}, {"type": "text", "text": words(300)}],
    "redacted": [{"type": "redacted_thinking", "data": "EmwKAhgB"}, {"type": "text", "text": words(300)}],
    "server tool": [
        {"type": "text", "text": words(300)},
        {"type": "server_tool_use", "id": "s1", "name": "web", "input": {}},
    ],
    "refusal": [{"type": "refusal", "refusal": words(300)}],
    "plain": [{"type": "text", "text": words(300)}],
}


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("on_overflow", [OnOverflow.TRUNCATE, OnOverflow.FORCE, OnOverflow.PASSTHROUGH])
@every_policy
def test_an_assistant_message_is_kept_whole_or_leaves_whole(policy: str, on_overflow: OnOverflow, blocks: str) -> None:
    """A23, with a string content too."""
    contents: list[Any] = [BLOCKS[blocks], words(300)]
    messages: list[Message] = [user("q0")]
    for content in contents * 2:
        messages += [{"role": "assistant", "content": content}, user("n")]
    messages = stamped(messages)

    for window in (100, 700, 1100):
        found = trim(messages, route(policy, window=window, on_overflow=on_overflow))
        assert all(m in messages for m in found.after if m["role"] == "assistant")


MIXED: dict[str, list[dict[str, Any]]] = {
    "picture": [
        {"type": "text", "text": words(700)},
        {"type": "image_url", "image_url": {"url": "https://h.test/a.png"}},
    ],
    "file": [{"type": "text", "text": words(700)}, {"type": "file", "file": {"file_id": "f"}}],
    "unknown": [{"type": "brand_new", "x": 1}, {"type": "text", "text": words(700)}],
}


@pytest.mark.parametrize("mixed", MIXED)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_only_pure_text_is_ever_shortened(role: str, mixed: str) -> None:
    """A23: a message with any other part in it is left alone by an overflow."""
    turn = [user("q0"), {"role": "user", "content": MIXED[mixed]}, assistant("a")]
    if role == "tool":
        turn = [user("q0"), calls(1), {**result(1, ""), "content": MIXED[mixed]}, assistant("a")]
    messages = stamped([*turn, user("last")])

    found = trim(messages, route(window=400, on_overflow=OnOverflow.TRUNCATE))

    assert found.after == messages
    assert found.outcome.action is Action.UNFIT


@pytest.mark.parametrize(
    "made",
    [
        lambda call: {**call, "extra_content": {"google": {"thought_signature": "op/aq+ue=="}}},
        lambda call: {**call, "index": 0, "provider_fields": None},
        lambda call: {**call, "function": {**call["function"], "thought_signature": "s", "arguments": '{ "n" : 1.0 }'}},
    ],
    ids=["signature", "index", "inside the function"],
)
@every_policy
def test_unknown_keys_inside_calls_survive(policy: str, made: Callable[[Message], Message]) -> None:
    """A25. The case pins the groups of the current turn; POLICIES.md makes those beyond `protect_last` evictable.

    What is kept is kept to the byte (as every trim asserts), and the newest groups are kept.
    """
    messages = [system(), user("q")]
    for number in range(12):
        caller, answer = call(number, words(40, number))
        messages += [{**caller, "tool_calls": [made(caller["tool_calls"][0])]}, answer]
    messages = stamped(messages)

    found = trim(messages, route(policy, window=500, protect_last=4))

    assert found.outcome.changed
    if policy != "semantic":  # which keeps the last exchange, whatever the others protect
        assert found.after[-8:] == messages[-8:]
    groups = [m["x_at"] for m in found.after if m.get("tool_calls")]
    if policy == "fifo":
        assert groups == list(range(groups[0], len(messages), 2)), "older groups of the turn go before newer ones"
