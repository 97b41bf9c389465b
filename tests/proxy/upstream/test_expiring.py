import pytest

from proxy.upstream.expiring import Expiring


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_value_lives_for_its_time_from_when_it_was_put() -> None:
    clock = Clock()
    kept: Expiring[str, int] = Expiring(capacity=2, ttl_s=10, clock=clock)
    kept.put("a", 1)
    clock.now = 9.9
    assert kept.get("a") == 1

    clock.now = 10.0

    assert kept.get("a") is None
    assert len(kept) == 0


def test_putting_again_begins_a_new_life() -> None:
    clock = Clock()
    kept: Expiring[str, int] = Expiring(capacity=2, ttl_s=10, clock=clock)
    kept.put("a", 1)
    clock.now = 9
    kept.put("a", 2)
    clock.now = 18

    assert kept.get("a") == 2


def test_what_was_used_longest_ago_makes_room() -> None:
    kept: Expiring[str, int] = Expiring(capacity=2, ttl_s=10, clock=Clock())
    kept.put("a", 1)
    kept.put("b", 2)
    kept.get("a")
    kept.put("c", 3)

    assert [kept.get(key) for key in "abc"] == [1, None, 3]
    assert len(kept) == 2


def test_what_is_dropped_is_gone() -> None:
    kept: Expiring[str, int] = Expiring(capacity=2, ttl_s=10, clock=Clock())
    kept.put("a", 1)
    kept.drop("a")
    kept.drop("b")

    assert kept.get("a") is None


@pytest.mark.parametrize(
    ("capacity", "ttl_s", "named"),
    [(0, 1.0, "capacity"), (-1, 1.0, "capacity"), (1, 0.0, "ttl_s"), (1, float("nan"), "ttl_s")],
)
def test_bounds_that_keep_nothing_are_refused(capacity: int, ttl_s: float, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Expiring(capacity=capacity, ttl_s=ttl_s, clock=Clock())
