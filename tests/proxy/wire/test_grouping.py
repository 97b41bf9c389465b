"""Calls and their results are one group, by position; whatever groups leave, nothing new is refused upstream."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.types import Kind
from proxy import wire
from proxy.wire.grouping import Group, alternates, begins_with_user, group
from tests.validator import violations, worsened


def call(*ids: str, content: str | None = None) -> dict:
    calls = [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(identity: str | None, content: str = "r") -> dict:
    return {"role": "tool", "content": content} | ({} if identity is None else {"tool_call_id": identity})


def legacy(name: str) -> dict:
    return {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}


def returned(name: str) -> dict:
    return {"role": "function", "name": name, "content": "r"}


S, U, A = ({"role": role, "content": role} for role in ("system", "user", "assistant"))


def groups(messages: list[dict]) -> tuple[Group, ...]:
    return group(wire.parse(json.dumps({"messages": messages}).encode()).messages)


CASES = [
    pytest.param([S, U, A, U], [(0,), (1,), (2,), (3,)], id="dialogue stands alone"),
    pytest.param([U, call("a"), result("a"), A], [(0,), (1, 2), (3,)], id="one call"),
    pytest.param(
        [call("a", "b", "c"), result("c"), result("a"), result("b")], [(0, 1, 2, 3)], id="parallel, any order"
    ),
    pytest.param(
        [call("call_0"), result("call_0"), call("call_0"), result("call_0")], [(0, 1), (2, 3)], id="ids again"
    ),
    pytest.param([call("a", "a"), result("a"), result("a")], [(0, 1, 2)], id="one id for two calls"),
    pytest.param([call("a"), U, result("a")], [(0, 2), (1,)], id="a user in between"),
    pytest.param([call("a", "b"), result("a"), S, result("b")], [(0, 1, 3), (2,)], id="a system message in between"),
    pytest.param([call("a"), call("b"), result("b"), result("a")], [(0, 3), (1, 2)], id="interleaved"),
    pytest.param([U, call("a")], [(0,), (1,)], id="never answered"),
    pytest.param([call("a", "b"), result("a"), U], [(0, 1), (2,)], id="half answered"),
    pytest.param([call("a"), result("a"), result("a"), U], [(0, 1, 2), (3,)], id="answered twice"),
    pytest.param([legacy("f"), returned("f"), legacy("f"), returned("f")], [(0, 1), (2, 3)], id="legacy functions"),
    pytest.param([call(""), result(None), U], [(0, 1), (2,)], id="neither has an id"),
    pytest.param([call("a", "b"), result(None), result(None)], [(0, 1, 2)], id="results without ids"),
    pytest.param([call("a"), S, result(None)], [(0, 2), (1,)], id="a result without id after a system message"),
]


@pytest.mark.parametrize(("messages", "expected"), CASES)
def test_what_belongs_together_is_one_group(messages: list[dict], expected: list[tuple[int, ...]]) -> None:
    found = groups(messages)

    assert [each.messages for each in found] == expected
    for each in found:
        first = messages[each.messages[0]]
        is_tool = "tool_calls" in first or "function_call" in first
        assert each == Group(
            each.messages, Kind.TOOL if is_tool else Kind.DIALOGUE, "tool" if is_tool else first["role"]
        )


@pytest.mark.parametrize(
    ("messages", "orphans"),
    [
        pytest.param([U, result("ghost"), U], [1], id="no call at all"),
        pytest.param([call("a"), result("ghost"), result("a")], [1], id="another id"),
        pytest.param([result("a"), call("a"), result("a")], [0], id="before its call"),
        pytest.param([call("a"), result("a"), result(None)], [2], id="without id, and all are answered"),
        pytest.param([call("a"), U, result(None)], [2], id="without id after a user"),
        pytest.param([legacy("f"), returned("g")], [1], id="another function"),
        pytest.param(
            [legacy("f"), returned("f"), result(None)], [2], id="without id after a function that was answered"
        ),
        pytest.param([call("f"), returned("f")], [1], id="a function result for a tool call"),
    ],
)
def test_a_result_without_its_call_is_an_orphan(messages: list[dict], orphans: list[int]) -> None:
    found = [each for each in groups(messages) if each.orphan]
    assert found == [Group((index,), Kind.TOOL, "tool", orphan=True) for index in orphans]


IDS = st.sampled_from(["call_0", "call_1", "call_2"])
MESSAGES = st.one_of(
    st.sampled_from([S, U, U, A, {"role": "developer", "content": "d"}, {"role": "critic"}]),
    st.lists(IDS, min_size=1, max_size=3).map(lambda ids: call(*ids)),
    IDS.map(result),
    st.just(result(None)),
    st.sampled_from(["f", "g"]).map(legacy),
    st.sampled_from(["f", "g"]).map(returned),
)
TURNS = st.lists(MESSAGES, max_size=14).map(lambda found: [one | {"n": i} for i, one in enumerate([U, *found])])


@given(messages=TURNS)
@settings(max_examples=200, deadline=None)
def test_every_message_is_in_one_group_and_groups_come_in_order(messages: list[dict]) -> None:
    found = groups(messages)

    assert sorted(index for each in found for index in each.messages) == list(range(len(messages)))
    assert [each.messages[0] for each in found] == sorted(each.messages[0] for each in found)
    assert all(list(each.messages) == sorted(each.messages) for each in found)
    for each in found:
        if messages[each.messages[0]]["role"] in ("system", "developer"):
            assert len(each.messages) == 1


@given(messages=TURNS, data=st.data())
@settings(max_examples=300, deadline=None)
def test_groups_that_leave_whole_leave_nothing_new_to_refuse(messages: list[dict], data: st.DataObject) -> None:
    evictable = [each for each in groups(messages) if each.role not in ("system", "developer")]
    gone = {i for each in evictable if data.draw(st.booleans()) for i in each.messages}
    after = [message for index, message in enumerate(messages) if index not in gone]

    if after:
        assert worsened(messages, after) == []


def test_a_part_of_a_group_that_leaves_is_refused() -> None:
    messages = [U, call("a", "b"), result("a"), result("b"), U]
    assert violations(messages) == []
    for gone in (1, 2, 3):
        assert worsened(messages, messages[:gone] + messages[gone + 1 :])


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([S, U, A, U], True, id="plain"),
        pytest.param([U, A, S, U, S, A], True, id="system anywhere"),
        pytest.param([U, call("a"), result("a"), A, U], True, id="a tool group before the answer"),
        pytest.param([U, call("a"), result("a"), call("b"), result("b"), A], True, id="two tool groups"),
        pytest.param([A, U], True, id="an assistant first"),
        pytest.param([S], True, id="no turns"),
        pytest.param([U, U], False, id="two users"),
        pytest.param([U, call("a"), result("a"), U], False, id="two users around a tool group"),
        pytest.param([U, A, A], False, id="two assistants"),
        pytest.param([U, {"role": "critic", "content": "c"}, U], False, id="an unknown role"),
    ],
)
def test_turns_alternate_with_tool_groups_left_out(messages: list[dict], expected: bool) -> None:
    assert alternates(wire.parse(json.dumps({"messages": messages}).encode()).messages) is expected


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([S, U, A], True, id="user"),
        pytest.param([S, A, U], False, id="assistant"),
        pytest.param([S, call("a"), result("a"), U], False, id="tool group"),
        pytest.param([S], False, id="system only"),
    ],
)
def test_a_user_comes_first_after_the_instructions(messages: list[dict], expected: bool) -> None:
    assert begins_with_user(wire.parse(json.dumps({"messages": messages}).encode()).messages) is expected
