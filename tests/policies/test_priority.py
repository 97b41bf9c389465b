import math

import pytest

from policies.plan import Evict
from policies.priority import Priority
from policies.types import Context, Kind, Slot
from tests.policies.sample_windows import slot, window


def score(one: Slot, policy: Priority = Priority(), now: float | None = None) -> float:  # noqa: B008 - frozen
    """The score of a slot when the last turn is the tenth."""
    action = policy.plan(window(one, slot("u10", pinned=True)), 10, Context(now=now)).actions[0]
    assert isinstance(action, Evict)
    assert action.score is not None
    return action.score


RECENCY = 100 * math.exp(-0.02 * 8)
SCORES = [
    ("user", slot("u2"), 60 + RECENCY),
    ("assistant", slot("a2", "assistant"), 40 + RECENCY),
    ("tool-group", slot("t2", "tool"), 30 + RECENCY),
    ("orphan-result", slot("x2", kind=Kind.TOOL, role="tool", orphan=True), 30 + RECENCY),
    ("unknown-role", slot("c2", "critic"), 50 + RECENCY),
    ("newer", slot("u9"), 60 + 100 * math.exp(-0.02)),
    ("references", slot("u2", reference_count=3), 60 + RECENCY + 30),
    ("references-are-capped", slot("u2", reference_count=9), 60 + RECENCY + 40),
    ("five-hundred-tokens-are-not-long", slot("u2", tokens=500), 60 + RECENCY),
    ("long", slot("u2", tokens=2000), 60 + RECENCY - 5 * math.log(4)),
    ("own-priority", slot("s2", kind=Kind.SUMMARY, priority=70), 60 + RECENCY + 70),
]


@pytest.mark.parametrize(("one", "expected"), [case[1:] for case in SCORES], ids=[case[0] for case in SCORES])
def test_scores(one: Slot, expected: float) -> None:
    assert score(one) == pytest.approx(expected)


def test_in_minutes_recency_is_half_after_about_thirty_five() -> None:
    minutes = Priority(age="minutes")
    assert score(slot("u2", created_at=0.0), minutes, now=35 * 60.0) == pytest.approx(60 + 50, abs=0.5)


def test_the_reason_shows_the_sum() -> None:
    one = slot("u2", tokens=2000, reference_count=1, priority=5)
    plan = Priority().plan(window(one, slot("u10", pinned=True)), 10, Context())
    assert plan.actions[0].reason == ("score 153.3: user 60 + recency 85.2 + references 10 - length 6.9 + priority 5")
