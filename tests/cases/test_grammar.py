"""Group A, calls and results: they are one, whatever trims them (A01, A02, A04, A05, A07, A19, A20)."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.route import OnOverflow, Pins, Targets
from tests.cases.histories import histories, stamped
from tests.cases.shapes import POLICIES, calls, cut, every_policy, result
from tests.cases.trimmed import trim
from tests.fakes.upstream import FakeUpstream
from tests.proxy.counted import total
from tests.proxy.dialogues import Message, assistant, body, call, dialogue, route, system, user, words
from tests.proxy.proxied import Start, post
from tests.validator import violations, worsened

# A01, A02, A04: calls and results are one

PARALLEL = [user("compare"), calls(1, 2, 3), result(2, words(200)), result(1, words(150)), result(3, words(90, 2))]
SHAPES: dict[str, list[Message]] = {
    "one call": [user("look"), *call(1, words(400)), assistant("done")],
    "parallel calls": [*PARALLEL, assistant("done")],
    "calls in a row": [user("look"), *call(1, words(200)), *call(2, words(200)), assistant("done")],
    "result as parts": [
        user("look"),
        calls(1),
        {**result(1, ""), "content": [{"type": "text", "text": words(300)}]},
        assistant("done"),
    ],
    "two answers to one call": [
        user("look"),
        calls(1),
        result(1, words(200)),
        result(1, words(99, 2)),
        assistant("ok"),
    ],
    "legacy function": [
        user("look"),
        {"role": "assistant", "content": None, "function_call": {"name": "look_up", "arguments": "{}"}},
        {"role": "function", "name": "look_up", "content": words(400)},
        assistant("done"),
    ],
    "custom call": [
        user("look"),
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
        },
        result(1, words(400)),
        assistant("done"),
    ],
    "late result": [user("look"), calls(1), user("hurry"), result(1, words(400)), assistant("done")],
}


NO_TASK = Pins(first_user=False)


@pytest.mark.parametrize("on_overflow", [OnOverflow.TRUNCATE, OnOverflow.FORCE])
@pytest.mark.parametrize("shape", SHAPES)
@every_policy
def test_a_call_and_its_results_leave_or_stay_together(policy: str, shape: str, on_overflow: OnOverflow) -> None:
    """A01, A02."""
    messages = stamped([system(), *SHAPES[shape], user("and the other one?")])
    callers = [i for i, message in enumerate(messages) if message.get("tool_calls") or "function_call" in message]
    for share, protect_last in ((1, 0), (3, 2), (6, 0)):
        window = max(40, total("gpt-4o", messages) * share // 8)
        chosen = route(policy, on_overflow=on_overflow, window=window, protect_last=protect_last, pins=NO_TASK)
        gone = trim(messages, chosen).evicted()
        for caller in callers:
            group = {caller, *_answers(messages, caller)}
            assert group <= gone or not group & gone


def _answers(messages: list[Message], caller: int) -> list[int]:
    """The results that follow a call before the next one, in these histories all of them its own."""
    following = range(caller + 1, len(messages))
    end = next(
        (i for i in following if messages[i].get("tool_calls") or messages[i]["role"] == "system"), len(messages)
    )
    return [i for i in range(caller + 1, end) if messages[i]["role"] in ("tool", "function")]


async def test_a_window_never_opens_on_an_orphan_result(start: Start, upstream: FakeUpstream) -> None:
    """A01, through the front door: three messages would fit, the result among them without its call would not do."""
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
    messages = [user("q1"), *call(1, words(4000)), assistant("done"), user("q2")]
    client = await start("defaults: {window: 3000, reserve_output: 0, protect_last: 0, policy: fifo}")

    response = await post(client, body(messages, tools=tools))

    assert response.headers["x-trimtab-action"] == "trimmed"
    assert upstream.last.json["messages"] == [messages[0], messages[3], messages[4]]


async def test_an_oversized_result_goes_with_its_call_or_is_replaced_in_place(
    start: Start, upstream: FakeUpstream
) -> None:
    """A02: an eviction takes the call too; clearing and truncating leave the result's id."""
    messages = [user("q"), *call(1, words(30_000)), user("next")]
    for chosen, expected in (
        ("policy: fifo, protect_last: 0", 2),
        ("policy: {name: clear_tool_results, keep: 0}, protect_last: 0", 4),
        ("policy: fifo, protect_last: 4, on_overflow: truncate", 4),
    ):
        client = await start(f"defaults: {{window: 4000, reserve_output: 0, {chosen}}}")
        await post(client, body(messages), **{"x-trimtab-session": str(expected)})
        sent = upstream.last.json["messages"]
        assert (len(sent), violations(sent)) == (expected, [])
        if expected == 4:
            assert sent[2]["tool_call_id"] == "call_1"
            assert 0 < len(sent[2]["content"]) < len(messages[2]["content"])


@every_policy
def test_no_message_is_sent_twice(policy: str) -> None:
    """A04: a history that ends in parallel results, over its budget."""
    messages = stamped([system(), *dialogue(6)[1:-1], *PARALLEL])

    found = trim(messages, route(policy, window=900, protect_last=1))

    marks = [message["x_at"] for message in found.after if "x_at" in message]
    assert marks == sorted(set(marks))
    assert [m for m in found.after if m["role"] == "tool"] == [
        m for m in messages if m["x_at"] in marks and m["role"] == "tool"
    ]


CUTS = st.fixed_dictionaries(
    {
        "window": st.integers(30, 900),
        "protect_last": st.integers(0, 4),
        "on_overflow": st.sampled_from([way for way in OnOverflow if way is not OnOverflow.REJECT]),
        "keep_prefix": st.sampled_from([0.0, 0.0, 0.3]),
        "pins": st.builds(Pins, first_user=st.booleans()),
    }
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=histories(), policy=st.sampled_from(POLICIES), cuts=CUTS)
def test_no_history_is_made_worse_by_any_policy(messages: list[Message], policy: str, cuts: dict[str, Any]) -> None:
    """A01-A23: every kind at once, for well-formed histories and for those that clients got wrong."""
    trim(messages, route(policy, **cuts))


# A05: what fits is not touched

NOOPS: dict[str, list[Message]] = {
    "ends in a result": [system("s"), user("q"), *call(1, "small")],
    "ends in parallel results": [user("q"), calls(1, 2), result(2, "b"), result(1, "a")],
    "ends in an unanswered call": [user("q"), calls(1)],
    "ends in a prefill": [user("q"), assistant("Sure,")],
    "only a system message": [system("s")],
    "only a result": [result(1, "r")],
    "empty contents": [user(""), assistant(""), {"role": "user", "content": []}],
    "orphans": [user("q"), result(7, "r"), user("n")],
    "repeated ids": [user("1"), *call(0, "r1"), assistant("x"), user("2"), *call(0, "r2")],
}


@pytest.mark.parametrize("shape", NOOPS)
async def test_what_fits_leaves_byte_for_byte(start: Start, upstream: FakeUpstream, shape: str) -> None:
    """A05, counted and uncounted."""
    client = await start("defaults: {policy: fifo}")
    content = body(NOOPS[shape], tools=[], x=1).replace(b', "x"', b' ,\t"x"')
    long = [{"type": "image_url", "image_url": {"url": "https://harbour.test/berth.png"}}]
    counted = body([*NOOPS[shape][:-1], {"role": "user", "content": long}, NOOPS[shape][-1]])

    for sent in (content, counted):
        response = await post(client, sent)
        assert bytes(upstream.last.body) == sent
        assert response.headers["x-trimtab-action"] == "pass"


# A07: counting is additive and asks nothing of the structure


@settings(max_examples=60, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_counts_add_up_in_any_order_and_for_any_part(messages: list[Message], random: Any) -> None:
    """A07: reversed, shuffled and partial lists are counted like any other."""
    whole = total("gpt-4o", messages)
    shuffled = random.sample(messages, len(messages))
    middle = random.randrange(len(messages))
    frame = total("gpt-4o", messages[:1]) * 2 - total("gpt-4o", [messages[0], messages[0]])

    assert total("gpt-4o", shuffled) == total("gpt-4o", messages[::-1]) == whole
    if middle:
        assert total("gpt-4o", messages[:middle]) + total("gpt-4o", messages[middle:]) - frame == whole


@pytest.mark.parametrize("failure", [RuntimeError("down"), RecursionError(), MemoryError()], ids=repr)
async def test_a_failing_counter_costs_no_request(
    start: Start, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """A07: the estimate from bytes takes over."""

    def fail(*_: object) -> int:
        raise failure

    client = await start("defaults: {window: 1000, reserve_output: 0, policy: fifo}")
    monkeypatch.setattr("proxy.tokens.Counter.measure", fail)
    monkeypatch.setattr("proxy.tokens.Counter.message", fail)
    messages = dialogue(20)

    response = await post(client, body(messages))

    assert response.status_code == 200
    assert response.headers["x-trimtab-faults"] == "counter"
    assert response.headers["x-trimtab-action"] == "trimmed"
    assert worsened(messages, upstream.last.json["messages"]) == []


# A19, A20: ids that repeat, results that answer nothing


@pytest.mark.parametrize("kept", [1, 2, 3, 5])
@every_policy
def test_repeated_ids_pair_with_the_nearest_call(policy: str, kept: int) -> None:
    """A19: a provider that begins at call_0 in every turn; no id is ever rewritten."""
    messages = [system()]
    for turn in range(6):
        messages += [user(f"{turn}?"), calls(0), result(0, f"{turn}: {words(60, turn)}"), assistant(f"{turn}!")]
    messages = stamped([*messages, user("last")])

    found = cut(messages, [messages[0], *messages[-1 - 4 * kept :]], policy)

    for message in found.after:
        if message["role"] == "tool":
            before = found.after[found.after.index(message) - 1]
            assert before["x_at"] == message["x_at"] - 1, "its own call"
            assert before["tool_calls"][0]["id"] == message["tool_call_id"] == "call_0"


def test_parallel_calls_with_one_id_are_one_slot() -> None:
    """A19: the same id twice in one message."""
    messages = stamped([user("q"), calls(0, 0), result(0, words(200)), result(0, words(200, 2)), *dialogue(3)[1:]])

    found = cut(messages, messages[4:])

    assert found.evicted() >= {1, 2, 3}


async def test_the_clients_own_orphan_is_forwarded_and_left_to_the_upstream(
    start: Start, upstream: FakeUpstream
) -> None:
    """A20, without eviction."""
    content = body([user("q"), {"role": "tool", "tool_call_id": "ghost", "content": "r"}, user("n")])

    await post(await start("defaults: {policy: fifo}"), content)

    assert bytes(upstream.last.body) == content


ORPHANS: dict[str, Message] = {
    "unknown id": {"role": "tool", "tool_call_id": "ghost", "content": words(30)},
    "no id": {"role": "tool", "content": words(30)},
    "id of another type": {"role": "tool", "tool_call_id": 7, "content": words(30)},
    "legacy": {"role": "function", "name": "ghost", "content": words(30)},
}


@pytest.mark.parametrize("orphan", ORPHANS)
@every_policy
def test_the_clients_own_orphan_is_the_first_to_go_and_is_audited(policy: str, orphan: str) -> None:
    """A20, with eviction."""
    messages = dialogue(10)
    messages.insert(11, ORPHANS[orphan])
    window = int(total("gpt-4o", messages) / 0.86)

    found = trim(messages, route(policy, window=window, targets=Targets(evict=0.83, emergency=0.6), recall_budget=0.0))

    rows = found.record["slots"]
    assert rows[[row["messages"] for row in rows].index([11])]["client_orphan"] is True
    assert 11 in found.evicted()
    if policy not in ("clear_tool_results", "semantic", "semantic_cluster"):  # which are not made to take little
        assert found.outcome.slots_evicted <= 3, "it went first, and little more was needed"
