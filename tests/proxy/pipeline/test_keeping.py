"""How much of the oldest a cut leaves alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import Slot, Window
from proxy.pipeline.keeping import keep, keep_said


def slots(*tokens: int, pinned: frozenset[int] = frozenset(), protected: frozenset[int] = frozenset()) -> list[Slot]:
    return [
        Slot(id=f"s{i}", role="user", text="", tokens=size, turn=i, pinned=i in pinned, protected=i in protected)
        for i, size in enumerate(tokens)
    ]


def kept(found: list[Slot]) -> list[int]:
    return [slot.turn for slot in found if slot.protected]


@pytest.mark.parametrize(
    ("tokens", "target", "marked", "expected"),
    [
        pytest.param(0, 100, set(), [], id="nothing asked for"),
        pytest.param(25, 100, set(), [0, 1], id="whole slots only"),
        pytest.param(100, 35, set(), [0, 1, 2], id="no more than the target has room for"),
        pytest.param(0, 100, {"s1"}, [0, 1], id="all before a marker"),
        pytest.param(0, 100, {"s0", "s2"}, [0, 1, 2], id="up to the last marker"),
        pytest.param(0, 100, {"s1", "s5"}, [0, 1], id="markers in the newer half move on"),
        pytest.param(10, 15, {"s1"}, [0], id="a marker that cannot stay counts for nothing"),
        pytest.param(0, 15, {"s0", "s2"}, [0], id="the marker before it still does"),
        pytest.param(40, 100, {"s1"}, [0, 1, 2, 3], id="the longer of both"),
    ],
)
def test_the_oldest_stay(tokens: int, target: int, marked: set[str], expected: list[int]) -> None:
    assert kept(keep(slots(*[10] * 8), tokens, target=target, marked=marked)) == expected


def test_what_stays_anyway_takes_its_room_first() -> None:
    window = slots(10, 10, 10, 10, 10, 10, pinned=frozenset({0}), protected=frozenset({5}))

    assert kept(keep(window, 60, target=45, overhead=5)) == [1, 2, 5]


@pytest.mark.parametrize(
    ("target", "limit", "expected"),
    [
        pytest.param(34, 100, [0, 1, 2], id="less than half of it would fit"),
        pytest.param(36, 100, [0, 1, 2, 3], id="more than half of it fits"),
        pytest.param(36, 39, [0, 1, 2], id="not past the limit"),
        pytest.param(36, 0, [0, 1, 2], id="no limit, no more than the target"),
    ],
)
def test_a_cut_may_end_at_the_nearest_border_of_a_slot(target: int, limit: int, expected: list[int]) -> None:
    assert kept(keep(slots(*[10] * 8), 80, target=target, limit=limit)) == expected


@given(
    limit=st.integers(0, 8000),
    sizes=st.lists(st.integers(1, 500), max_size=30),
    tokens=st.integers(0, 8000),
    target=st.integers(0, 8000),
    overhead=st.integers(0, 500),
    marks=st.sets(st.integers(0, 29)),
    fixed=st.sets(st.integers(0, 29)),
)
def test_the_target_can_still_be_met(
    limit: int, sizes: list[int], tokens: int, target: int, overhead: int, marks: set[int], fixed: set[int]
) -> None:
    before = slots(*sizes, pinned=frozenset(fixed))
    after = keep(before, tokens, target=target, limit=limit, overhead=overhead, marked={f"s{i}" for i in marks})
    new = [slot.turn for old, slot in zip(before, after, strict=True) if old != slot]
    least = overhead + sum(slot.tokens for slot in after if not slot.evictable)

    assert [slot.id for slot in after] == [slot.id for slot in before]
    assert not new or least <= max(target, limit)
    assert not new or least <= target + max(sizes) / 2
    assert all(slot.turn > max(new) for slot in after if slot.evictable and new), "nothing older than what stays may go"


def test_where_turns_alternate_an_even_number_is_left_to_go() -> None:
    window = slots(*[10] * 9, pinned=frozenset({0, 8}))

    assert kept(keep(window, 30, target=1000)) == [1, 2]
    assert kept(keep(window, 30, target=1000, alternate=True)) == [1]
    assert kept(keep(window, 40, target=1000, alternate=True)) == [1, 2, 3]


def talk(*tokens: int, alternate: bool = False) -> Window:
    """Messages of a user and answers in turns, the first and the last of the user's pinned."""
    made = tuple(
        Slot(
            id=f"s{i}",
            role="assistant" if i % 2 else "user",
            text="",
            tokens=size,
            turn=i,
            pinned=i in (0, len(tokens) - 1),
        )
        for i, size in enumerate(tokens)
    )
    return Window(slots=made, budget=1000, used=sum(tokens) + 7, overhead=7, alternate=alternate)


@pytest.mark.parametrize(
    ("tokens", "most", "alternate", "expected"),
    [
        pytest.param(100, 1000, False, [2, 4, 6], id="all of it"),
        pytest.param(0, 1000, False, [], id="no share"),
        pytest.param(20, 1000, False, [4, 6], id="the newest first"),
        pytest.param(100, 47, False, [4, 6], id="within what the prompt may have"),
        pytest.param(100, 20, False, [], id="no room"),
        pytest.param(180, 1000, True, [2, 3, 4, 5, 6, 7], id="each with its answer"),
        pytest.param(100, 1000, True, [6, 7], id="as far as the answers fit too"),
    ],
)
def test_what_the_user_said_stays(tokens: int, most: int, alternate: bool, expected: list[int]) -> None:
    seen = talk(10, 50, 10, 50, 10, 50, 10, 50, 10, alternate=alternate)

    assert kept(list(keep_said(seen, tokens, most).slots)) == expected


def test_a_long_message_gives_way_to_older_ones_that_fit() -> None:
    assert kept(list(keep_said(talk(10, 5, 10, 5, 90, 5, 10, 5, 10), 30, 1000).slots)) == [2, 6]
