from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.hybrid import Hybrid
from policies.plan import Plan, Summarize, apply, check
from policies.priority import Priority
from policies.types import Context, Need, Window
from tests.policies.sample_windows import slot, talk, window

LONG = talk("S " + "U A " * 20 + "U*")
ODD = {f"{'UA'[i % 2 == 0]}{i}": i % 5 / 5 for i in range(1, 41)}


def left(plan: Plan, before: Window) -> list[str]:
    check(plan, before)
    return [one.id for one in apply(plan, before).slots]


@pytest.mark.parametrize(("overflow", "fast"), [(0.0, True), (0.15, True), (0.19, True), (0.20, False), (0.25, False)])
def test_the_fast_path_is_taken_below_an_overflow_of_a_fifth(overflow: float, fast: bool) -> None:
    context = Context(query="where is it?", overflow=overflow, similarity=ODD)
    plan = Hybrid().plan(LONG, 150, context)
    assert plan.policy == "hybrid"
    assert (plan.actions == Priority().plan(LONG, 150, context).actions) is fast
    assert ("relevance" in plan.actions[0].reason) is not fast


def test_the_slow_path_keeps_what_is_most_relevant_to_the_prompt() -> None:
    relevant = {"U3", "A10", "U17", "A18"}
    context = Context(
        query="where is it?", overflow=0.5, similarity=dict.fromkeys(ODD, 0.1) | dict.fromkeys(relevant, 0.8)
    )
    assert left(Hybrid().plan(LONG, 60, context), LONG) == ["S0", "U3", "A10", "U17", "A18", "U41"]


def test_where_turns_alternate_the_exchange_of_what_is_relevant_stays() -> None:
    before = replace(LONG, alternate=True, user_first=True)
    context = Context(query="where is it?", overflow=0.5, similarity=dict.fromkeys(ODD, 0.1) | {"A10": 0.9, "U17": 0.8})
    assert left(Hybrid().plan(before, 60, context), before) == ["S0", "U9", "A10", "U17", "A18", "U41"]


def test_a_slot_that_takes_much_of_the_room_has_to_be_worth_it() -> None:
    before = window(slot("u1", tokens=80), slot("u2", tokens=20), slot("u3", tokens=20), slot("u4", pinned=True))
    context = Context(query="where is it?", overflow=0.5, similarity={"u1": 0.6, "u2": 0.5, "u3": 0.5})
    assert left(Hybrid().plan(before, 90, context), before) == ["u2", "u3", "u4"]
    worth = replace(context, similarity={"u1": 0.9, "u2": 0.5, "u3": 0.5})
    assert left(Hybrid().plan(before, 90, worth), before) == ["u1", "u4"]


def test_what_cannot_fit_makes_way_for_what_can() -> None:
    before = window(slot("u1", tokens=200), slot("u2", tokens=50), slot("u3", tokens=50), slot("u4", pinned=True))
    context = Context(query="where is it?", overflow=0.5, similarity={"u1": 1.0, "u2": 0.1, "u3": 0.2})
    assert left(Hybrid().plan(before, 110, context), before) == ["u2", "u3", "u4"]


def vectors(*topics: int) -> dict[str, NDArray[np.float32]]:
    return {f"m{i}": np.eye(8, dtype=np.float32)[topic] for i, topic in enumerate(topics)}


def test_a_share_of_the_room_is_for_the_newest_of_each_cluster() -> None:
    before = window(*(slot(f"m{i}") for i in range(8)), slot("m8", pinned=True))
    similarity = {f"m{i}": 0.9 - i / 100 for i in range(6)} | {"m6": 0.2, "m7": 0.1}
    context = Context(
        query="where is it?", overflow=0.5, similarity=similarity, vectors=vectors(0, 0, 0, 0, 0, 1, 1, 2)
    )
    assert left(Hybrid(newest=0).plan(before, 50, context), before) == ["m0", "m1", "m2", "m3", "m8"]
    # The newest of the cluster that matters most first: m4, then m6.
    assert left(Hybrid(newest=0.5).plan(before, 50, context), before) == ["m0", "m1", "m4", "m6", "m8"]


def test_a_share_of_the_room_is_for_summaries_of_what_goes() -> None:
    before = window(*(slot(f"m{i}", tokens=400) for i in range(8)), slot("m8", pinned=True))
    context = Context(
        query="where is it?",
        overflow=0.5,
        similarity={f"m{i}": 1 - i / 10 for i in range(8)},
        vectors=vectors(0, 0, 0, 0, 1, 1, 1, 1),
        summary_tokens=200,
    )
    plan = Hybrid(summaries=0.2, newest=0).plan(before, 1500, context)
    assert left(plan, before) == ["m0", "m1", "m2", "m4", "m8"]
    summaries = [action for action in plan.actions if isinstance(action, Summarize)]
    assert [(one.slots, one.tokens) for one in summaries] == [(("m4", "m5", "m6", "m7"), 200), (("m2", "m3"), 98)]
    assert not any(isinstance(a, Summarize) for a in Hybrid(summaries=0).plan(before, 1500, context).actions)


@pytest.mark.parametrize("similarity", [{}, dict.fromkeys(ODD, 0.0)])
def test_where_nothing_tells_slots_apart_priority_decides(similarity: dict[str, float]) -> None:
    context = Context(query="", overflow=0.5, similarity=similarity)
    assert Hybrid().plan(LONG, 150, context).actions == Priority().plan(LONG, 150, context).actions


def test_priority_decides_again_where_that_was_not_enough() -> None:
    """The first exchange cannot go without what stands behind it, which has to stay, so the relevant one goes."""
    before = talk("S U A T! U A U*", alternate=True, user_first=True)
    context = Context(query="it", overflow=0.5, similarity={"U1": 0.1, "A2": 0.1, "U4": 0.9, "A5": 0.9})
    plan = Hybrid().plan(before, 50, context)
    assert left(plan, before) == ["S0", "U1", "A2", "T3", "U6"]
    assert "priority" in plan.actions[0].reason


def test_it_asks_for_summaries_only_where_there_is_room_for_them() -> None:
    assert Hybrid().needs == {Need.USES, Need.SIMILARITY, Need.VECTORS, Need.SUMMARIES}
    assert Need.SUMMARIES not in Hybrid(summaries=0).needs


def test_the_reason_tells_relevance_size_and_cluster() -> None:
    before = window(slot("m0"), slot("m1"), slot("m2", pinned=True))
    context = Context(query="it", overflow=0.5, similarity={"m0": 0.25, "m1": 0.5}, vectors=vectors(0, 0))
    plan = Hybrid(newest=1).plan(before, 20, context)
    assert [action.reason for action in plan.actions] == ["relevance 0.250 for 10 tokens, cluster 0"]


@pytest.mark.parametrize(("overflow", "stay"), [(0.19, ["u0", "t3"]), (0.20, ["u0", "t1", "t3"])])
def test_far_over_its_target_it_lets_stay_of_the_current_turn_what_fits_after_all(
    overflow: float, stay: list[str]
) -> None:
    before = window(slot("u0", pinned=True), slot("t1", "tool"), slot("t2", "tool", 100), slot("t3", "tool"))
    assert left(Hybrid().plan(before, 60, Context(query="where is it?", overflow=overflow)), before) == stay
