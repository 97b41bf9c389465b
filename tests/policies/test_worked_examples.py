"""Traces from the literature on context eviction, with the constants they were published with.

A window of 100 tokens with a system prompt of 10 receives items, and the last one brings it over: which goes?
"""

import pytest

from policies.lru import Lru
from policies.plan import Plan, apply
from policies.rwr import Rwr
from policies.token_cost import TokenCost
from policies.turns import Age
from policies.types import Context, Window
from tests.policies.sample_windows import slot, window

NOW = 1000.0


def received(*items: tuple[str, str, int, float]) -> Window:
    """Items as (name, role, tokens, seconds ago), after a pinned system prompt of 10 tokens."""
    system = slot("sys", "system", 10, pinned=True, created_at=NOW - 100, turn=0)
    slots = [
        slot(name, role, tokens, turn=turn, created_at=NOW - ago, last_accessed_at=NOW - ago)
        for turn, (name, role, tokens, ago) in enumerate(items, 1)
    ]
    return window(system, *slots)


def evicted(plan: Plan) -> list[str]:
    return [action.slot for action in plan.actions]  # type: ignore[union-attr]


@pytest.mark.parametrize("age", ["turns", "minutes"])
def test_lru_evicts_the_first_item(age: Age) -> None:
    before = received(
        ("item1", "user", 20, 50),
        ("item2", "assistant", 30, 40),
        ("item3", "user", 25, 30),
        ("item4", "assistant", 35, 20),
    )
    plan = Lru(age=age).plan(before, 100, Context(now=NOW))
    assert evicted(plan) == ["item1"]
    assert apply(plan, before).used == 100


@pytest.mark.parametrize("age", ["turns", "minutes"])
def test_rwr_evicts_what_is_old_and_irrelevant(age: Age) -> None:
    before = received(
        ("A", "user", 20, 50), ("B", "assistant", 30, 40), ("C", "user", 25, 30), ("D", "assistant", 35, 20)
    )
    relevance = {"A": 0.2, "B": 0.8, "C": 0.6, "D": 0.9}
    plan = Rwr(alpha=0.7, beta=0.3, age=age).plan(before, 100, Context(now=NOW, similarity=relevance))
    assert evicted(plan) == ["A"]
    assert apply(plan, before).used == 100


def test_token_cost_evicts_the_lowest_value_for_its_tokens() -> None:
    """The article prints Z, but by its own formula X is worth least: 0.0025 (0.1/40) < 0.01 (Z) < 0.06 (Y)."""
    before = received(
        ("X", "user", 40, 50), ("Y", "assistant", 15, 40), ("Z", "user", 20, 30), ("W", "assistant", 30, 20)
    )
    plan = TokenCost().plan(before, 100, Context(similarity={"X": 0.1, "Y": 0.9, "Z": 0.2, "W": 0.8}))
    assert evicted(plan) == ["X"]
    assert apply(plan, before).used == 75
