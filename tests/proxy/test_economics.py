"""What a cut costs and brings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import Slot
from proxy.economics import Cut, Economy, cut, loses, saves, worthwhile

WINDOW = [Slot(id=f"s{i}", role="user", text="", tokens=100, turn=i) for i in range(6)]


@pytest.mark.parametrize(
    ("gone", "cached", "expected"),
    [
        pytest.param({"s0"}, 650, Cut(freed=100, uncached=500), id="the oldest: all behind it"),
        pytest.param({"s1", "s3"}, 650, Cut(freed=200, uncached=300), id="two: all that stays behind the first"),
        pytest.param({"s5"}, 650, Cut(freed=100, uncached=0), id="the newest: nothing"),
        pytest.param({"s1"}, 400, Cut(freed=100, uncached=150), id="only what is cached can be lost"),
        pytest.param({"s1"}, 0, Cut(freed=100, uncached=0), id="no cache"),
        pytest.param(set(), 650, Cut(freed=0, uncached=0), id="no cut"),
    ],
)
def test_a_cut_takes_what_stands_behind_it_from_the_cache(gone: set[str], cached: int, expected: Cut) -> None:
    assert cut(WINDOW, gone, cached, overhead=50) == expected


def test_prices_are_those_of_the_route() -> None:
    made = Cut(freed=100, uncached=400)

    assert loses(made, Economy(price=0.25)) == 300
    assert saves(made, Economy(price=0.25, horizon_turns=20)) == 500
    assert loses(made, Economy(price=0.1)) == 360
    assert saves(made, Economy(price=0.1, horizon_turns=20)) == 200


@pytest.mark.parametrize(
    ("made", "economy", "expected"),
    [
        pytest.param(Cut(freed=100, uncached=400), Economy(), True, id="over twenty turns"),
        pytest.param(Cut(freed=100, uncached=400), Economy(horizon_turns=12), False, id="breaking even is not enough"),
        pytest.param(Cut(freed=100, uncached=400), Economy(price=0.1), False, id="cached tokens are cheap"),
        pytest.param(Cut(freed=100, uncached=400), Economy(price=1.0, horizon_turns=1), True, id="no discount"),
        pytest.param(Cut(freed=100, uncached=0), Economy(price=0.0), False, id="cached tokens are free"),
        pytest.param(Cut(freed=0, uncached=0), Economy(), False, id="nothing freed"),
        pytest.param(Cut(freed=100, uncached=0), Economy(horizon_turns=0), False, id="no horizon, no saving"),
    ],
)
def test_a_cut_pays_where_it_saves_more_than_it_loses(made: Cut, economy: Economy, expected: bool) -> None:
    assert worthwhile(made, economy) is expected


@given(
    tokens=st.lists(st.integers(0, 300), min_size=1, max_size=12),
    gone=st.sets(st.integers(0, 11)),
    cached=st.integers(0, 4000),
    overhead=st.integers(0, 300),
)
def test_what_is_freed_and_what_is_lost_are_within_the_prompt(
    tokens: list[int], gone: set[int], cached: int, overhead: int
) -> None:
    window = [Slot(id=f"s{i}", role="user", text="", tokens=size, turn=i) for i, size in enumerate(tokens)]
    made = cut(window, {f"s{i}" for i in gone}, cached, overhead)

    assert made.freed == sum(size for i, size in enumerate(tokens) if i in gone)
    assert 0 <= made.uncached <= min(sum(tokens) - made.freed, max(0, cached - overhead))
