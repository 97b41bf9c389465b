import pytest

from proxy.stores.breaker import Breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker(trip_after=3)
    assert [breaker.failed(t, t + 0.1) for t in (0.0, 1.0)] == [False, False]

    breaker.succeeded()
    assert [breaker.failed(t, t + 0.1) for t in (2.0, 3.0, 4.0, 5.0)] == [False, False, True, False]
    assert breaker.open


def test_failures_of_calls_under_way_together_count_as_one() -> None:
    breaker = Breaker(trip_after=2)

    assert not any(breaker.failed(started, 0.25) for started in (0.0, 0.1, 0.2))
    assert not breaker.failed(0.24, 0.3)
    assert breaker.failed(0.25, 0.5)


def test_a_late_success_does_not_close_it() -> None:
    breaker = Breaker(trip_after=1)
    breaker.failed(0.0, 0.1)
    breaker.succeeded()
    assert breaker.open

    breaker.reset()
    assert not breaker.open


def test_waits_double_up_to_the_longest_and_start_anew_after_a_reset() -> None:
    breaker = Breaker(first_s=0.5, longest_s=3.0, chance=lambda: 0.0)
    waits = []
    for _ in range(5):
        waits.append(breaker.wait_s())
        breaker.trial_failed()
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]

    breaker.reset()
    assert breaker.wait_s() == 0.5


@pytest.mark.parametrize(("chance", "wait_s"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_chance_cuts_a_wait_by_up_to_half(chance: float, wait_s: float) -> None:
    assert Breaker(first_s=8.0, longest_s=8.0, chance=lambda: chance).wait_s() == wait_s


def test_waits_stay_finite_however_often_it_fails() -> None:
    breaker = Breaker(longest_s=30.0, chance=lambda: 0.0)
    for _ in range(5000):
        breaker.trial_failed()
    assert breaker.wait_s() == 30.0


def test_a_breaker_that_trips_on_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="trip_after: must be at least 1, got 0"):
        Breaker(trip_after=0)


def test_a_store_that_is_back_is_found_within_seconds_however_long_it_was_away() -> None:
    breaker = Breaker(chance=lambda: 0.0)
    for _ in range(100):
        breaker.trial_failed()

    assert breaker.wait_s() == 5.0
