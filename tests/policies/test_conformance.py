"""Every registered policy, with several sets of options, keeps what all policies promise."""

import time
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import registry
from policies.errors import PlanError
from policies.greedy import evict_lowest
from policies.plan import Action, Evict, Plan, apply
from policies.types import Context, Need, Policy, Window
from tests.policies.conformance import conforms, zoned
from tests.policies.sample_windows import TEXTS, contexts, slot, talk, window, windows

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
    "semantic": [{"top_k": 0}],
    "semantic_cluster": [{"max_clusters": 1}, {"summaries": 0}, {"summaries": 1}],
    "hybrid": [{"slow_from": 0}, {"slow_from": 0, "newest": 1, "summaries": 0.5}, {"slow_from": 0, "newest": 0}],
    "adaptive": [{"swing": 1, "least": 0, "latest": 1}, {"recency": "exponential", "age": "minutes"}],
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


@settings(max_examples=25, deadline=None)
@given(window=windows(), share=st.floats(0, 1.1), context=contexts())
def test_promises_hold(policy: Policy, window: Window, share: float, context: Context) -> None:
    conforms(policy, window, int(window.used * share), context)


@settings(max_examples=10, deadline=None)
@given(window=windows(rules=False), context=contexts())
def test_without_rules_all_that_is_evictable_goes_before_giving_up(
    policy: Policy, window: Window, context: Context
) -> None:
    window = zoned(policy, window, context)
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
    started = time.thread_time()
    plan = policy.plan(long, long.used // 2, context)
    assert time.thread_time() - started < 0.5  # seconds of work: several times what it takes
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


@dataclass(frozen=True)
class Faulty:
    """Plans as told, and differently the second time if told twice."""

    plans: tuple[tuple[Action, ...], ...]
    calls: list[int] = field(default_factory=list)
    name: ClassVar[str] = "faulty"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        self.calls.append(target)
        return Plan(self.name, self.plans[min(len(self.calls), len(self.plans)) - 1])


def leaving(*ids: str) -> tuple[Action, ...]:
    return tuple(Evict(id_, 0.0, "why") for id_ in ids)


FAULTS: list[tuple[str, tuple[tuple[Action, ...], ...], int, str]] = [
    ("touches-what-fits", (leaving("U1"),), 60, "a window that fits was touched"),
    ("not-deterministic", (leaving("U1", "A2"), leaving("U3", "A4")), 40, "the same window gave another plan"),
    ("gives-up", ((),), 40, "could have gone too"),
    ("stops-early", (leaving("U1", "A2"),), 30, "could have gone too"),
    ("goes-on", (leaving("U1", "A2"), leaving("U1", "A2"), leaving("U3", "A4")), 40, "planning again changed"),
    ("quotes", ((Evict("U1", 0.0, "the secret plan"), Evict("A2", 0.0, "why")),), 40, "quotes a message"),
    ("no-reason", ((Evict("U1", 0.0, ""), Evict("A2", 0.0, "why")),), 40, "without a reason"),
]


@pytest.mark.parametrize(("_id", "plans", "target", "problem"), FAULTS, ids=[case[0] for case in FAULTS])
def test_a_policy_that_breaks_a_promise_is_found_out(
    _id: str, plans: tuple[tuple[Action, ...], ...], target: int, problem: str
) -> None:
    before = talk("S U A U A U*", alternate=True, user_first=True)
    before = replace(before, slots=tuple(replace(one, text="the secret plan") for one in before.slots))
    with pytest.raises(AssertionError, match=problem):
        conforms(Faulty(plans), before, target, Context())


def test_a_policy_whose_plan_is_refused_is_found_out() -> None:
    with pytest.raises(PlanError, match="which is pinned"):
        conforms(Faulty((leaving("S0"),)), talk("S U A U*"), 30, Context())
