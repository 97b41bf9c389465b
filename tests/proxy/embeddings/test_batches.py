from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.embeddings.batches import BATCH_CHARACTERS, BATCH_TEXTS, Pace, batch

CALL_S, CHARACTER_S = 0.01, 0.0001


def waiting(*lengths: int) -> OrderedDict[bytes, str]:
    return OrderedDict((bytes([i]), "x" * length) for i, length in enumerate(lengths))


def pace(call_s: float = CALL_S, character_s: float = CHARACTER_S, calls: int = 60) -> Pace:
    found = Pace()
    for i in range(calls):
        size = 100 + 37 * i % 900
        found.learn(size, call_s + size * character_s)
    return found


def took(chosen: list[bytes], texts: OrderedDict[bytes, str]) -> float:
    return CALL_S + CHARACTER_S * sum(len(texts[key]) for key in chosen)


@pytest.mark.parametrize(("call_s", "character_s"), [(0.01, 0.0001), (0.3, 1e-6), (0.0, 0.001), (0.0, 0.0)], ids=str)
def test_the_pace_is_learned(call_s: float, character_s: float) -> None:
    found = pace(call_s, character_s)

    for size in (0, 300, 2000):
        assert found.seconds(size) == pytest.approx(call_s + size * character_s, rel=0.05, abs=2e-3)


def test_the_pace_follows_a_machine_that_becomes_slow() -> None:
    found = pace()
    for _ in range(20):
        found.learn(400, 0.5)

    assert 0.4 < found.seconds(400) < 0.6
    assert found.seconds(40) < found.seconds(400)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), max_size=30), st.integers(0, 10**6))
def test_whatever_was_measured_time_grows_with_length_and_is_never_below_zero(
    calls: list[tuple[int, float]], size: int
) -> None:
    found = Pace()
    for characters, seconds in calls:
        found.learn(characters, seconds)

    assert 0 <= found.call_s <= found.seconds(size) < found.seconds(size + 1000)


def test_what_is_to_come_alone_comes_first() -> None:
    assert batch(waiting(100, 100, 100), pace(), 0.15, [bytes([1])]) == [bytes([1])]


def test_what_is_to_come_alone_and_would_be_late_does_not_keep_others_back() -> None:
    texts = waiting(100, 100, 5000)

    assert batch(texts, pace(), 0.15, [bytes([2])]) == [bytes([1]), bytes([0])]


@pytest.mark.parametrize("left_s", [0.03, 0.05, 0.1, 0.15, 1.0])
def test_a_batch_ends_before_nobody_waits_any_more(left_s: float) -> None:
    texts = waiting(*[100] * 40)
    chosen = batch(texts, pace(), left_s, [])

    assert chosen == [bytes([39 - i]) for i in range(len(chosen))], "the newest first"
    assert 0 < took(chosen, texts) < left_s


@pytest.mark.parametrize("left_s", [-1.0, 0.0, 0.001, 0.02])
def test_nothing_is_begun_that_would_be_late(left_s: float) -> None:
    assert batch(waiting(100, 100), pace(), left_s, []) == []


def test_a_text_that_takes_too_long_is_passed_over() -> None:
    assert batch(waiting(200, 3000), pace(), 0.15, []) == [bytes([0])]


def test_texts_of_a_batch_are_alike_in_length() -> None:
    assert batch(waiting(100, 10, 90, 150), pace(), 10.0, []) == [bytes([3]), bytes([2]), bytes([0])]


def test_where_nobody_waits_batches_are_short_all_the_same() -> None:
    texts = waiting(*[100] * 40)
    chosen = batch(texts, pace(), None, [])

    assert 2 <= len(chosen) < BATCH_TEXTS
    assert took(chosen, texts) < 0.1


def test_where_nobody_waits_the_longest_text_has_its_turn() -> None:
    assert batch(waiting(100, 50_000), pace(), None, []) == [bytes([1])]


def test_calls_that_take_long_whatever_they_carry_carry_much() -> None:
    assert len(batch(waiting(*[100] * 40), pace(0.3, 1e-6), None, [])) == BATCH_TEXTS


def test_a_batch_is_bounded_in_characters() -> None:
    texts = waiting(*[BATCH_CHARACTERS // 4] * 16)

    assert len(batch(texts, pace(0.3, 1e-9), 10.0, [])) == 4
