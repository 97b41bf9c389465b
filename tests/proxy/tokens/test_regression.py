import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.tokens.regression import Sums, nothing

WIDE = (-1e9,) * 3, (1e9,) * 3
share = st.floats(-3, 3, allow_subnormal=False)
observation = st.tuples(st.tuples(share, share, share), share, st.floats(0.01, 2))


def seen(observations: list[tuple[tuple[float, float, float], float, float]], keep: float = 1.0) -> Sums:
    sums = nothing(3)
    for shares, target, weight in observations:
        sums = sums.plus(shares, target, weight=weight, keep=keep)
    return sums


@given(st.lists(observation, max_size=12), st.tuples(share, share, share))
@settings(max_examples=100, deadline=None)
def test_it_is_the_least_squares_solution(
    observations: list[tuple[tuple[float, float, float], float, float]], prior: tuple[float, float, float]
) -> None:
    stiffness = np.array([0.1, 0.5, 1.0])
    rows = [np.sqrt(weight) * np.array(shares) for shares, _, weight in observations] + list(np.diag(stiffness**0.5))
    targets = [np.sqrt(weight) * target for _, target, weight in observations] + list(stiffness**0.5 * prior)
    expected = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]

    found = seen(observations).solve(prior, tuple(stiffness), *WIDE)

    assert found == pytest.approx(expected, abs=1e-6)


@given(st.lists(observation, max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_coefficient_leaves_its_bounds(observations: list[tuple[tuple[float, float, float], float, float]]) -> None:
    low, high = (0.5, 0.0, -1.0), (1.0, 0.0, 1.0)

    found = seen(observations).solve((0.7, 0.0, 0.0), (0.1,) * 3, low, high)

    assert all(a - 1e-9 <= w <= b + 1e-9 for a, w, b in zip(low, found, high, strict=True))


def test_the_others_make_up_for_one_on_its_bound() -> None:
    sums = seen([((1.0, 1.0, 0.0), 4.0, 1e6)])

    found = sums.solve((1.0, 1.0, 1.0), (0.01,) * 3, (0.0,) * 3, (1.5, 9.0, 9.0))

    assert found == pytest.approx((1.5, 2.5, 1.0), abs=1e-3)


def test_nothing_seen_leaves_the_prior() -> None:
    assert nothing(3).solve((1.0, 2.0, 3.0), (0.1,) * 3, *WIDE) == pytest.approx((1.0, 2.0, 3.0))


def test_what_was_seen_is_forgotten() -> None:
    sums = seen([((1.0, 0.0, 0.0), 1.0, 1.0)] + [((1.0, 0.0, 0.0), 2.0, 1.0)] * 30, keep=0.5)

    assert sums.solve((0.0,) * 3, (1e-9,) * 3, *WIDE)[0] == pytest.approx(2.0, abs=1e-6)


def test_an_absurd_observation_stays_finite() -> None:
    sums = seen([((1e300, -1e300, 1e300), 1e300, 1.0)] * 3)

    assert all(np.isfinite(sums.solve((1.0,) * 3, (0.1,) * 3, (0.0,) * 3, (2.0,) * 3)))
