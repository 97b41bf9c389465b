import pytest

from policies.lru import Lru
from policies.plan import Evict
from policies.types import Context
from tests.policies.sample_windows import slot, window

HOUR = 3600.0


def order(policy: Lru, *slots: object, now: float | None = 10 * HOUR) -> str:
    before = window(*slots, slot("u9", pinned=True))  # type: ignore[arg-type]
    return " ".join(
        action.slot for action in policy.plan(before, 0, Context(now=now)).actions if isinstance(action, Evict)
    )


@pytest.mark.parametrize("age", ["turns", "minutes"])
def test_an_access_makes_an_old_slot_young(age: str) -> None:
    slots = (
        slot("u1", created_at=1 * HOUR, last_accessed_at=9 * HOUR),
        slot("a2", "assistant", created_at=2 * HOUR, last_accessed_at=3.5 * HOUR),
        slot("u3", created_at=3 * HOUR),
        slot("a4", "assistant", created_at=4 * HOUR),
        slot("u5", created_at=9 * HOUR),
    )
    assert order(Lru(age=age), *slots) == ("a2 u3 a4 u1 u5" if age == "turns" else "u3 a2 a4 u1 u5")


@pytest.mark.parametrize("age", ["turns", "minutes"])
def test_without_times_turns_decide(age: str) -> None:
    assert order(Lru(age=age), slot("u1"), slot("a3", "assistant"), slot("a2", "assistant"), now=None) == "u1 a2 a3"


def test_an_access_from_before_the_slot_was_seen_changes_nothing() -> None:
    early = slot("u3", created_at=7.0, last_accessed_at=5.5)
    assert order(Lru(), slot("u1", created_at=5.0), slot("a2", "assistant", created_at=6.0), early) == "u1 a2 u3"
    assert order(Lru(), slot("u1", created_at=5.0), slot("a2", "assistant", created_at=6.0, last_accessed_at=1.0)) == (
        "u1 a2"
    )


def test_the_reason_says_how_long_ago() -> None:
    before = window(slot("u1", created_at=0.0), slot("u2", created_at=60.0, pinned=True))
    reasons = [Lru(age=age).plan(before, 10, Context(now=90.0)).actions[0].reason for age in ("turns", "minutes")]
    assert reasons == ["last accessed 1 turns ago", "last accessed 1.5 minutes ago"]
