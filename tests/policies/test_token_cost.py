from typing import Any

import pytest

from policies.plan import Evict
from policies.token_cost import TokenCost
from policies.types import Context, Need
from tests.policies.sample_windows import slot, window

BEFORE = window(
    slot("u1", tokens=40, priority=20),
    slot("a2", "assistant", tokens=10, priority=10),
    slot("u3", tokens=80, priority=90),
    slot("a4", "assistant", tokens=60, priority=30),
    slot("u9", pinned=True),
)
SIMILARITY = {"u1": 0.4, "a2": 0.06, "u3": 0.9, "a4": 0.3}

ORDERS: list[tuple[str, TokenCost, str]] = [
    ("value-for-tokens", TokenCost(), "a4 a2 u1 u3"),
    ("own-priority", TokenCost(relevance="tags"), "u1 a4 a2 u3"),
    ("all-worth-one", TokenCost(relevance="none"), "u3 a4 u1 a2"),
    ("low-values-by-size", TokenCost(threshold=0.5), "a4 u1 a2 u3"),
    ("threshold-and-worth-one", TokenCost(relevance="none", threshold=0.5), "u3 a4 u1 a2"),
]


@pytest.mark.parametrize(("policy", "expected"), [case[1:] for case in ORDERS], ids=[case[0] for case in ORDERS])
def test_order(policy: TokenCost, expected: str) -> None:
    plan = policy.plan(BEFORE, 0, Context(similarity=SIMILARITY))
    assert " ".join(action.slot for action in plan.actions if isinstance(action, Evict)) == expected


@pytest.mark.parametrize(
    ("relevance", "needs"), [("similarity", {Need.SIMILARITY}), ("tags", set()), ("none", set()), ("keywords", set())]
)
def test_only_what_the_options_use_is_gathered(relevance: Any, needs: set[Need]) -> None:
    assert TokenCost(relevance=relevance).needs == needs


def test_reasons_show_value_and_cost() -> None:
    plan = TokenCost(threshold=0.5).plan(BEFORE, 0, Context(similarity=SIMILARITY))
    assert [action.reason for action in plan.actions][::3] == [
        "value 0.300 for 60 tokens, under 0.5: largest first",
        "value 0.900 for 80 tokens",
    ]
