import math
from typing import Any

import pytest

from policies.plan import Evict
from policies.rwr import Rwr
from policies.types import Context, Need
from tests.policies.sample_windows import slot, window

BEFORE = window(
    slot("u1", text="invoice for the bicycle", priority=50),
    slot("a2", "assistant", text="nice weather today", priority=10, created_at=60.0),
    slot("u3", text="where is the bicycle invoice?", pinned=True),
)
QUERY = "where is the bicycle invoice?"


def scores(policy: Rwr, **context: Any) -> dict[str, float | None]:
    plan = policy.plan(BEFORE, 10, Context(query=QUERY, **context))
    return {action.slot: action.score for action in plan.actions if isinstance(action, Evict)}


SCORES: list[tuple[str, Rwr, dict[str, Any], float, float]] = [
    ("similarity", Rwr(), {"similarity": {"u1": 0.9, "a2": 0.2}}, 0.6 / 3 + 0.4 * 0.9, 0.6 / 2 + 0.4 * 0.2),
    ("no-similarity-yet", Rwr(), {}, 0.6 / 3 + 0.4, 0.6 / 2),
    ("one-is-late", Rwr(), {"similarity": {"a2": 0.5}}, 0.6 / 3 + 0.4, 0.6 / 2 + 0.4 * 0.5),
    ("keywords", Rwr(relevance="keywords"), {"similarity": {"u1": 0.0}}, 0.6 / 3 + 0.4, 0.6 / 2),
    ("tags", Rwr(relevance="tags"), {"similarity": {"u1": 0.0}}, 0.6 / 3 + 0.4 * 0.5, 0.6 / 2 + 0.4 * 0.1),
    ("rated", Rwr(relevance="llm"), {"similarity": {"u1": 0.3, "a2": 0.7}}, 0.6 / 3 + 0.12, 0.6 / 2 + 0.28),
    (
        "exponential",
        Rwr(recency="exponential", decay=0.5, relevance="keywords"),
        {},
        0.6 * math.exp(-1) + 0.4,
        0.6 * math.exp(-0.5),
    ),
    ("scaled-weights", Rwr(alpha=0.3, beta=0.9, relevance="keywords"), {}, 0.25 / 3 + 0.75, 0.25 / 2),
    ("recency-alone", Rwr(alpha=1, beta=0), {}, 1 / 3, 1 / 2),
]


@pytest.mark.parametrize(("_id", "policy", "context", "one", "two"), SCORES, ids=[case[0] for case in SCORES])
def test_scores(_id: str, policy: Rwr, context: dict[str, Any], one: float, two: float) -> None:
    assert scores(policy, **context) == pytest.approx({"u1": one, "a2": two})


@pytest.mark.parametrize(
    ("relevance", "needs"),
    [("similarity", {Need.SIMILARITY}), ("llm", {Need.RATINGS}), ("keywords", set()), ("tags", set())],
)
def test_only_what_the_options_use_is_gathered(relevance: Any, needs: set[Need]) -> None:
    assert Rwr(relevance=relevance).needs == needs


def test_weights_that_do_not_sum_to_one_are_scaled_and_said() -> None:
    assert (Rwr(alpha=0.6, beta=0.6).normalised, Rwr(alpha=0.6, beta=0.6).weights) == (True, (0.5, 0.5))
    assert not Rwr().normalised
    assert not Rwr(alpha=0.7, beta=0.3).normalised


def test_the_reason_shows_the_sum() -> None:
    plan = Rwr().plan(BEFORE, 20, Context(query=QUERY))
    assert plan.actions[0].reason == "score 0.300: recency 0.300 + relevance 0.000"
