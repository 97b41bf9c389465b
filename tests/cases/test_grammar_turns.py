"""Group A, turns: who is first and last, instructions, and what is empty (A08, A10, A11, A13, A14, A16, A17)."""

from typing import Any

import pytest

from proxy.pipeline.outcome import Action
from proxy.route import Alternate, OnOverflow, Pins
from proxy.wire import parse
from proxy.wire.grouping import alternates, begins_with_user
from tests.cases.histories import stamped
from tests.cases.shapes import calls, every_policy, result
from tests.cases.trimmed import settled, trim
from tests.proxy.counted import total
from tests.proxy.dialogues import Message, agent, assistant, body, call, dialogue, route, system, user, words

# A08, A10, A11: who is first, who is last, whose turn it is


@pytest.mark.parametrize("first_user", [True, False], ids=["task pinned", "task not pinned"])
@pytest.mark.parametrize("kind", ["dialogue", "agent", "opens with calls"])
@every_policy
def test_a_window_begins_with_a_user_where_the_clients_did(policy: str, kind: str, first_user: bool) -> None:
    """A08: no call is left first by taking away the question before it."""
    messages = {
        "dialogue": dialogue(12),
        "agent": [*agent(8), user("go on"), *call(90, words(60)), user("and now?")],
        "opens with calls": [system(), user("q"), *call(1, words(90)), *call(2, words(90)), *dialogue(8)[1:]],
    }[kind]

    for window in (300, 700):
        found = trim(messages, route(policy, window=window, protect_last=1, pins=Pins(first_user=first_user)))
        assert begins_with_user(parse(found.outcome.body).messages)


@every_policy
def test_a_route_can_ask_for_a_user_first_whatever_the_client_sent(policy: str) -> None:
    """A08: the calls that stood before the first question go, and the answer that they led to with them."""
    messages = [system(), *call(1, words(300)), assistant(words(40)), user("q"), assistant("a"), user("last")]

    found = trim(messages, route(policy, window=300, protect_last=2, first_role_user=True))

    assert next(m["role"] for m in found.after if m["role"] != "system") == "user"


@pytest.mark.parametrize("ending", ["prefill", "empty prefill", "open calls", "prefill after calls"])
@every_policy
def test_a_trailing_assistant_message_stays_and_stays_last(policy: str, ending: str) -> None:
    """A10."""
    tail = {
        "prefill": [user("q"), assistant("Sure, the answer is")],
        "empty prefill": [user("q"), assistant("")],
        "open calls": [user("q"), calls(1, 2)],
        "prefill after calls": [user("q"), *call(1, words(60)), assistant("So the berth is")],
    }[ending]
    messages = stamped([*dialogue(10)[:-1], *tail])

    for protect_last, on_overflow in ((0, OnOverflow.FORCE), (4, OnOverflow.TRUNCATE)):
        found = trim(messages, route(policy, window=400, protect_last=protect_last, on_overflow=on_overflow))
        assert found.outcome.changed
        assert found.after[-1] == messages[-1]


@pytest.mark.parametrize("on_overflow", [OnOverflow.TRUNCATE, OnOverflow.FORCE])
@every_policy
def test_turns_that_alternated_alternate(policy: str, on_overflow: OnOverflow) -> None:
    """A11: with tool calls between turns as well."""
    messages = dialogue(9)
    messages[8:8] = call(1, words(70))
    for window in (200, 450):
        settings = {"protect_last": 2, "pins": Pins(first_user=False), "on_overflow": on_overflow}
        found = trim(messages, route(policy, window=window, **settings))
        assert found.outcome.changed
        assert alternates(parse(found.outcome.body).messages)


def test_a_route_that_is_free_may_break_the_alternation_and_a_strict_one_may_not() -> None:
    """A11: the route's own word."""
    messages = [system(), user("u1"), assistant(words(300)), user("u2"), assistant("a2"), user("u3")]

    def after(alternate: Alternate) -> list[Message]:
        chosen = route("token_cost", window=250, protect_last=2, alternate_roles=alternate)
        return settled(body(messages), chosen).after

    assert [m["role"] for m in after(Alternate.FREE)] == ["system", "user", "user", "assistant", "user"]
    assert alternates(parse(body(after(Alternate.STRICT))).messages)


# A13, A14: instructions


@every_policy
def test_nothing_adds_a_system_message(policy: str) -> None:
    """A13: what a policy writes, if it writes anything, is a user's note."""
    messages = dialogue(12)

    found = trim(messages, route(policy, window=500))

    assert [m for m in found.after if m["role"] in ("system", "developer")] == [messages[0]]
    assert found.after[0] == messages[0]


@pytest.mark.parametrize("role", ["system", "developer"])
@every_policy
def test_late_instructions_stay_where_they_stand(policy: str, role: str) -> None:
    """A14. The case evicts the oldest late ones when pins are over the budget; POLICIES.md pins them all, always."""
    messages = dialogue(10)
    for at in (15, 9, 5):
        messages.insert(at, {"role": role, "content": f"Hook state {at}: {words(20, at)}"})
    messages = stamped(messages)
    own = [m for m in messages if m["role"] in ("system", "developer")]

    for window, on_overflow in ((600, OnOverflow.TRUNCATE), (60, OnOverflow.FORCE), (60, OnOverflow.TRUNCATE)):
        found = trim(messages, route(policy, window=window, on_overflow=on_overflow))
        assert [m for m in found.after if m["role"] in ("system", "developer")] == own
        sent = [m["x_at"] for m in found.after]
        assert sent == sorted(sent), "nothing moved to the head"
    assert found.outcome.action is Action.UNFIT


# A16, A17: nothing is emptied, and what came empty stays so

EMPTY: dict[str, Message] = {
    "empty answer": assistant(""),
    "empty parts": {"role": "assistant", "content": []},
    "empty text part": {"role": "user", "content": [{"type": "text", "text": ""}]},
    "blank": assistant(" \n"),
    "null": {"role": "assistant", "content": None},
    "missing": {"role": "assistant"},
}


@pytest.mark.parametrize("empty", EMPTY)
@every_policy
def test_what_the_client_left_empty_passes_and_nothing_else_is_emptied(policy: str, empty: str) -> None:
    """A16."""
    messages = stamped([*dialogue(8)[:-1], user("q"), EMPTY[empty], user("q2")])

    found = trim(messages, route(policy, window=400, protect_last=3))

    assert messages[-2] in found.after
    blank = [m for m in found.after if not m.get("content")]
    assert blank == [m for m in messages if not m.get("content") and m in found.after]


@pytest.mark.parametrize("silent", ["", [], [{"type": "text", "text": ""}], " "], ids=repr)
@every_policy
def test_a_result_that_says_nothing_keeps_its_place(policy: str, silent: Any) -> None:
    """A17: it goes only with its whole group, is never filled in, and costs next to nothing."""
    group = [calls(1, 2), {**result(1, ""), "content": silent}, result(2, words(40))]
    messages = stamped([user("mkdir"), *group, *dialogue(8)[1:]])
    assert 0 < total("gpt-4o", [user("q"), messages[2]]) - total("gpt-4o", [user("q")]) < 15

    for window in (250, 500):
        found = trim(messages, route(policy, window=window, protect_last=2))
        assert {1, 2, 3} <= found.evicted() or messages[2] in found.after


@every_policy
def test_a_history_without_a_users_message_keeps_its_newest_slot(policy: str) -> None:
    """What is left must ask for something: a list of instructions alone, or none at all, does not."""
    for head in ([], [system()]):
        messages = stamped([*head, *call(1, words(80)), *call(2, words(80)), *call(3, words(80))])
        found = trim(messages, route(policy, window=60, protect_last=0, on_overflow=OnOverflow.FORCE))
        assert found.after[-2]["x_at"] == len(messages) - 2
