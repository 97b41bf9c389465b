import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.stores.backlog import Backlog, Batch


def test_the_first_value_under_a_key_stays() -> None:
    backlog = Backlog()
    backlog.put({b"k": b"first"}, 60.0)
    backlog.put({b"k": b"second"}, 60.0)

    assert backlog.batch(10) == Batch({b"k": b"first"}, 60.0)


def test_a_batch_holds_values_that_live_equally_long() -> None:
    backlog = Backlog()
    backlog.put({b"a": b"1", b"b": b"2", b"c": b"3"}, 60.0)
    backlog.put({b"d": b"4"}, None)

    batches = []
    while batch := backlog.batch(2):
        batches.append(batch)
        backlog.done(batch)

    assert batches == [
        Batch({b"a": b"1", b"b": b"2"}, 60.0),
        Batch({b"c": b"3"}, 60.0),
        Batch({b"d": b"4"}, None),
    ]


def test_a_batch_stays_until_it_is_done() -> None:
    backlog = Backlog()
    backlog.put({b"a": b"1"}, 60.0)

    batch = backlog.batch(1)
    assert batch is not None
    assert backlog.batch(1) == batch
    backlog.clear()
    backlog.done(batch)
    assert len(backlog) == 0


@settings(max_examples=100)
@given(
    puts=st.lists(st.dictionaries(st.binary(max_size=3), st.binary(max_size=8), max_size=5), max_size=12),
    max_items=st.integers(1, 6),
    max_bytes=st.integers(1, 40),
)
def test_what_is_kept_is_bounded_and_the_rest_is_counted(
    puts: list[dict[bytes, bytes]], max_items: int, max_bytes: int
) -> None:
    backlog = Backlog(max_items=max_items, max_bytes=max_bytes)
    taken = 0
    for items in puts:
        before = set(backlog.batch(100).items) if len(backlog) else set()
        taken += len(items.keys() - before)
        backlog.put(items, None)

    held = backlog.batch(100)
    items = dict(held.items) if held else {}
    assert len(items) == len(backlog) <= max_items
    assert sum(len(key) + len(value) for key, value in items.items()) <= max_bytes
    assert len(items) + backlog.dropped == taken


@pytest.mark.parametrize("bound", ["max_items", "max_bytes"])
def test_a_bound_that_keeps_nothing_is_refused(bound: str) -> None:
    with pytest.raises(ValueError, match=f"{bound}: must be at least 1, got 0"):
        Backlog(**{bound: 0})
