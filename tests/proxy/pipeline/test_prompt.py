"""Pins, protection and rules of a window."""

import re
from typing import Any

import pytest

from policies.types import Kind, Window
from proxy import wire
from proxy.conversations.ledger import Ledger
from proxy.pipeline.prompt import assemble, window
from proxy.route import Alternate, Pins
from proxy.wire import grouping
from proxy.wire.chat import Message
from tests.proxy.dialogues import agent, assistant, body, call, dialogue, route, system, user, words


def build(
    messages: list[dict[str, Any]],
    asked: frozenset[int] = frozenset(),
    budget: int = 10_000,
    target: int | None = None,
    **settings: Any,
) -> Window:
    read = wire.parse(body(messages)).messages

    def count(message: Message) -> int:
        return 4 + len(message.text.split())

    prompt = assemble(read, grouping.group(read), Ledger(), 3, count)
    return window(prompt, read, route(**settings), budget, asked, lambda m: len(m.text.split()), target=target)


def pinned(made: Window) -> list[str]:
    return [slot.id for slot in made.slots if slot.pinned]


def protected(made: Window) -> list[str]:
    return [slot.id for slot in made.slots if slot.protected]


def test_instructions_the_task_and_the_prompt_are_pinned() -> None:
    messages = [
        system(),
        user("task"),
        assistant("a"),
        {"role": "developer", "content": "late"},
        user("b"),
        assistant("c"),
        user("now"),
    ]

    assert pinned(build(messages, protect_last=0)) == ["m0", "m1", "m3", "m6"]


@pytest.mark.parametrize("protect_last", [1, 2, 3, 4, 9])
def test_the_last_slots_are_protected_however_few_there_are(protect_last: int) -> None:
    made = build([user("task"), *call(0, "r"), user("now")], protect_last=protect_last, pins=Pins(first_user=False))

    assert [slot.id for slot in made.slots if slot.evictable] == ["m0", "m1"][: max(0, 3 - protect_last)]


@pytest.mark.parametrize("head", [[], [system()]])
def test_without_a_users_message_the_newest_slot_is_pinned(head: list[dict[str, Any]]) -> None:
    made = build([*head, *call(0, "r"), *call(1, "r")], protect_last=0)

    assert pinned(made)[-1] == f"m{len(head) + 2}"
    assert not made.slots[len(head)].pinned


def test_a_trailing_assistant_message_is_pinned() -> None:
    assert pinned(build([user("task"), assistant("a"), user("go on"), assistant("Sure, the")], protect_last=0)) == [
        "m0",
        "m2",
        "m3",
    ]


def test_an_open_call_at_the_end_is_pinned() -> None:
    assert pinned(build([user("task"), *call(0, "r"), call(1, "")[0]], protect_last=0)) == ["m0", "m3"]


def test_a_tool_loop_that_waits_for_the_model_is_protected_not_pinned() -> None:
    made = build(agent(6), protect_last=2)

    assert pinned(made) == ["m0", "m1"]
    assert protected(made) == ["m10", "m12"]


def test_a_task_over_a_quarter_of_the_budget_is_protected_instead() -> None:
    messages = [user(words(300)), assistant("a"), user("b")]

    assert pinned(build(messages, budget=1000, protect_last=0)) == ["m2"]
    assert protected(build(messages, budget=1000, protect_last=0)) == ["m0"]
    assert pinned(build(messages, budget=1000, protect_last=0, asked=frozenset({0}))) == ["m0", "m2"]
    assert pinned(build([user(words(300))], budget=1000)) == ["m0"], "it is the prompt itself"


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        pytest.param(Pins(first_user=False), ["m0", "m8"], id="the task can be let go"),
        pytest.param(Pins(text=(re.compile(r"B-\d+"),)), ["m0", "m1", "m5", "m8"], id="by text"),
        pytest.param(Pins(tools=frozenset({"book"})), ["m0", "m1", "m2", "m8"], id="by tool"),
    ],
)
def test_a_route_pins_by_text_and_by_tool(pins: Pins, expected: list[str]) -> None:
    messages = [
        *(system(), user("task"), *call(0, "booked", name="book"), assistant("done")),
        *(user("the berth is B-12"), *call(1, "r"), user("now")),
    ]

    assert pinned(build(messages, pins=pins, protect_last=0)) == expected


def test_the_client_pins_by_message_and_gets_the_whole_slot() -> None:
    assert pinned(
        build([user("t"), *call(0, "r"), assistant("x"), user("n")], asked=frozenset({2}), protect_last=0)
    ) == [
        *("m0", "m1", "m4"),
    ]


def test_the_routes_share_of_the_oldest_slots_is_left_alone() -> None:
    made = build(dialogue(6, size=20), budget=1000, keep_prefix=0.1, protect_last=0, alternate_roles=Alternate.FREE)

    assert protected(made) == ["m2", "m3"]


@pytest.mark.parametrize(("target", "expected"), [(None, ["m2", "m3"]), (600, ["m2", "m3"]), (80, ["m2"]), (50, [])])
def test_what_is_kept_for_the_cache_never_stands_in_the_way_of_the_target(
    target: int | None, expected: list[str]
) -> None:
    free = Alternate.FREE
    made = build(
        dialogue(6, size=20), budget=1000, keep_prefix=0.1, protect_last=0, target=target, alternate_roles=free
    )

    assert protected(made) == expected


def test_what_the_client_marked_for_the_cache_is_left_alone() -> None:
    messages = dialogue(6, size=20)
    messages[4]["content"] = [{"type": "text", "text": "Keep it.", "cache_control": {"type": "ephemeral"}}]

    assert protected(build(messages, budget=1000, protect_last=0)) == ["m2", "m3", "m4"]
    assert protected(build(messages, budget=1000, protect_last=0, target=60)) == []


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(dialogue(10, size=20), 52, id="a question and its answer"),
        pytest.param(agent(10, size=60), 66, id="a call with its result"),
        pytest.param([system(words(500))], 0, id="instructions are no turn"),
    ],
)
def test_a_conversation_grows_by_what_a_request_adds(messages: list[dict[str, Any]], expected: int) -> None:
    read = wire.parse(body(messages)).messages
    prompt = assemble(read, grouping.group(read), Ledger(), 3, lambda message: 4 + len(message.text.split()))

    assert prompt.growth == pytest.approx(expected, rel=0.1)


def test_what_is_gone_does_not_count_as_growth() -> None:
    read = wire.parse(body(agent(10, size=60))).messages
    groups = grouping.group(read)
    whole, cut = (
        assemble(read, groups, Ledger(drops=drops), 3, lambda message: 4 + len(message.text.split()))
        for drops in (frozenset(), frozenset(range(2, 12)))
    )

    assert cut.growth == pytest.approx(whole.growth, rel=0.1)


def test_a_tool_slot_knows_what_clearing_it_would_free() -> None:
    slot = build([user("t"), *call(0, "one two three"), user("n")]).slots[1]

    assert (slot.kind, slot.role, slot.results, slot.result_tokens) == (Kind.TOOL, "tool", 1, 3)


@pytest.mark.parametrize(
    ("rule", "messages", "expected"),
    [
        (Alternate.FREE, dialogue(3), False),
        (Alternate.STRICT, [user("a"), user("b")], True),
        (Alternate.AS_INPUT, dialogue(3), True),
        (Alternate.AS_INPUT, [user("a"), user("b"), assistant("c"), user("d")], False),
        (Alternate.AS_INPUT, agent(3), True),
    ],
)
def test_alternation_follows_the_route_or_the_input(
    rule: Alternate, messages: list[dict[str, Any]], expected: bool
) -> None:
    assert build(messages, alternate_roles=rule).alternate is expected


@pytest.mark.parametrize(
    ("rule", "messages", "expected"),
    [
        (None, [system(), user("a")], True),
        (None, [system(), assistant("hello"), user("a")], False),
        (False, [system(), user("a")], False),
        (True, [system(), assistant("hello"), user("a")], True),
    ],
)
def test_the_first_turn_follows_the_route_or_the_input(
    rule: bool | None, messages: list[dict[str, Any]], expected: bool
) -> None:
    assert build(messages, first_role_user=rule).user_first is expected
