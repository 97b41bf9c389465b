"""Every registered policy, with several sets of options, keeps what all policies promise."""

import time

import pytest
from conformance import conforms
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_windows import TEXTS, contexts, slot, window, windows

from policies import registry
from policies.greedy import evict_lowest
from policies.plan import apply
from policies.types import Context, Policy, Window

OPTIONS: dict[str, list[dict[str, object]]] = {
    "priority": [{"age": "minutes", "decay": 0.5}, {"reference_bonus": 0, "long_tokens": 20}],
    "clear_tool_results": [{"keep": 0, "placeholder": "gone"}],
    "lru": [{"age": "minutes"}],
    "rwr": [
        {"recency": "exponential", "age": "minutes"},
        {"relevance": "keywords", "alpha": 0.1, "beta": 0.3},
        {"relevance": "tags", "alpha": 0},
        {"relevance": "llm", "beta": 0},
    ],
    "token_cost": [{"relevance": "none"}, {"relevance": "tags"}, {"threshold": 0.4}],
}
CASES = [(name, options) for name in registry.names() for options in ({}, *OPTIONS.get(name, []))]
IDS = [f"{name}-{'-'.join(f'{key}={value}' for key, value in options.items()) or 'default'}" for name, options in CASES]


@pytest.fixture(scope="module", params=CASES, ids=IDS)
def policy(request: pytest.FixtureRequest) -> Policy:
    name, options = request.param
    return registry.create(name, options)


def test_every_module_and_entry_point_loads() -> None:
    assert registry.broken() == {}


def test_every_set_of_options_belongs_to_a_policy() -> None:
    assert OPTIONS.keys() <= set(registry.names())


@settings(max_examples=40, deadline=None)
@given(window=windows(), share=st.floats(0, 1.1), context=contexts())
def test_promises_hold(policy: Policy, window: Window, share: float, context: Context) -> None:
    conforms(policy, window, int(window.used * share), context)


@settings(max_examples=15, deadline=None)
@given(window=windows(rules=False), context=contexts())
def test_without_rules_all_that_is_evictable_goes_before_giving_up(
    policy: Policy, window: Window, context: Context
) -> None:
    after = apply(policy.plan(window, 0, context), window, context.count)
    assert not after.used or not any(slot.evictable for slot in after.slots)


def test_long_conversations_are_planned_quickly(policy: Policy) -> None:
    roles = ("user", "tool", "assistant")
    slots = [
        slot(f"s{i}", roles[i % 3], 40, text=f"{TEXTS[i % 9]} item{i % 97} order{i}", created_at=float(i))
        for i in range(1500)
    ]
    long = window(slot("sys", "system", pinned=True), *slots, alternate=True, user_first=True)
    context = Context(query=TEXTS[0], now=2000.0)
    policy.plan(long, long.used // 2, context)  # keyword sets are kept between requests
    started = time.perf_counter()
    plan = policy.plan(long, long.used // 2, context)
    assert time.perf_counter() - started < 0.5  # ten times what it takes on a busy machine
    assert plan.actions


@settings(max_examples=100, deadline=None)
@given(window=windows(rules=False), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)), seed=st.randoms())
def test_a_ranking_evicts_no_more_than_needed_and_a_lower_target_only_adds(window, shares, seed) -> None:  # type: ignore[no-untyped-def]
    scores = {slot.id: seed.random() for slot in window.slots}
    low, high = sorted(int(window.used * share) for share in shares)
    less, more = (evict_lowest(window, target, scores, "why") for target in (high, low))
    assert more[: len(less)] == less
    tokens = {slot.id: slot.tokens for slot in window.slots}
    if less:
        assert window.used - sum(tokens[action.slot] for action in less[:-1]) > high
