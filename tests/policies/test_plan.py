"""What `check` refuses, and what `apply` leaves."""

import pytest

from policies.errors import PlanError, PolicyError
from policies.plan import Action, Evict, Plan, Shrink, Summarize, apply, check
from policies.types import Kind, Window
from tests.policies.sample_windows import slot, talk, window

TOOLS = window(
    slot("sys0", "system", pinned=True),
    slot("u1"),
    slot("t2", "tool", 100, results=2, result_tokens=80),
    slot("t3", "tool", 100, protected=True),
    slot("a4", "assistant"),
    slot("u5", pinned=True),
)


def evict(*ids: str) -> tuple[Action, ...]:
    return tuple(Evict(id_, None, "why") for id_ in ids)


REFUSED: list[tuple[str, Window, tuple[Action, ...], str]] = [
    ("unknown", TOOLS, evict("u9"), "evicts slot 'u9', which is not in the window"),
    ("unknown-summarised", TOOLS, (Summarize(("u1", "x"), "why", 5),), "summarises slot 'x', which is not in"),
    ("twice", TOOLS, evict("u1", "u1"), "evicts slot 'u1', which an earlier action already touches"),
    ("evicted-and-shortened", TOOLS, (*evict("t2"), Shrink("t2", "gone", "why")), "already touches"),
    ("pinned", TOOLS, evict("sys0"), "evicts slot 'sys0', which is pinned"),
    ("protected", TOOLS, evict("t3"), "evicts slot 't3', which is protected"),
    ("protected-shortened", TOOLS, (Shrink("t3", "gone", "why"),), "shortens slot 't3', which is protected"),
    ("pinned-summarised", TOOLS, (Summarize(("u1", "u5"), "why", 5),), "summarises slot 'u5', which is pinned"),
    ("emptied", TOOLS, (Shrink("t2", " \n", "why"),), "to nothing"),
    ("no-results", TOOLS, (Shrink("u1", "gone", "why"),), "which has no tool results"),
    ("no-saving", TOOLS, (Shrink("t2", "x" * 160, "why"),), "from 80 to 80 tokens, which saves nothing"),
    ("overlap", TOOLS, (Summarize(("u1", "t2"), "why", 5), Summarize(("t2", "a4"), "why", 5)), "already touches"),
    ("empty-summary", TOOLS, (Summarize((), "why", 5),), "a summary of no slots"),
    ("free-summary", TOOLS, (Summarize(("u1", "a4"), "why", 0),), "a summary of 2 slots in 0 tokens"),
    ("long-summary", TOOLS, (Summarize(("u1", "a4"), "why", 20),), "from 20 to 20 tokens, which saves nothing"),
    ("alternation", talk("U A U A U", alternate=True), evict("A1"), "would no longer alternate"),
    (
        "alternation-summarised",
        talk("U A U A U", alternate=True),
        (Summarize(("A1",), "why", 5),),
        "would no longer alternate",
    ),
    ("first-role", talk("S U A U A U", user_first=True), evict("U1"), "would not be a user's"),
    ("first-role-tool", talk("S U T A U", user_first=True), evict("U1", "A3"), "would not be a user's"),
]


@pytest.mark.parametrize(("_id", "before", "actions", "problem"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_plan_that_breaks_a_promise_is_refused(
    _id: str, before: Window, actions: tuple[Action, ...], problem: str
) -> None:
    with pytest.raises(PlanError, match="plan of mine") as caught:
        check(Plan("mine", actions), before)
    assert problem in str(caught.value)
    assert isinstance(caught.value, PolicyError)


ALLOWED: list[tuple[str, Window, tuple[Action, ...]]] = [
    ("nothing", TOOLS, ()),
    ("tool-and-turns", TOOLS, (*evict("u1", "a4"), Shrink("t2", "gone", "why"))),
    ("exchange", talk("U A U A U", alternate=True, user_first=True), evict("U0", "A1")),
    ("tool-between", talk("U T A U A U", alternate=True), evict("T1")),
    ("did-not-alternate-before", talk("U U A A U", alternate=True), evict("U1", "A2")),
    ("user-was-not-first-before", talk("A U A U", user_first=True), evict("U1")),
    ("nobody-left", talk("S U A", user_first=True), evict("U1", "A2")),
    ("summary-is-a-users-note", talk("S U T A U", user_first=True), (Summarize(("U1", "T2"), "why", 5),)),
    ("free", talk("U A U"), evict("A1")),
]


@pytest.mark.parametrize(("_id", "before", "actions"), ALLOWED, ids=[case[0] for case in ALLOWED])
def test_a_plan_that_keeps_them_passes(_id: str, before: Window, actions: tuple[Action, ...]) -> None:
    check(Plan("mine", actions), before)


def test_what_is_shortened_is_counted_again_for_each_result() -> None:
    plan = Plan("mine", (*evict("u1", "a4"), Shrink("t2", "cleared", "why")))
    after = apply(plan, TOOLS, count=len)
    assert [one.id for one in after.slots] == ["sys0", "t2", "t3", "u5"]
    tool = after.slots[1]
    assert (tool.text, tool.tokens, tool.result_tokens) == ("cleared", 100 - 80 + 2 * 7, 14)
    assert after.used == TOOLS.used - 10 - 10 - 66


def test_a_summary_stands_where_its_oldest_stood_and_costs_what_it_may() -> None:
    """Whatever order its slots are named in."""
    plan = Plan("mine", (Summarize(("a4", "u1"), "why", 12, references=3),))
    after = apply(plan, TOOLS)
    assert [one.id for one in after.slots] == ["sys0", "u1", "t2", "t3", "u5"]
    summary = after.slots[1]
    assert (summary.kind, summary.role, summary.turn) == (Kind.SUMMARY, "user", TOOLS.slots[1].turn)
    assert (summary.tokens, summary.priority, summary.reference_count) == (12, 70, 3)
    assert after.used == TOOLS.used - 20 + 12


def test_overhead_is_still_counted_after_a_plan() -> None:
    before = window(slot("u1"), slot("u2"), overhead=7)
    assert apply(Plan("mine", evict("u1")), before).used == 17
