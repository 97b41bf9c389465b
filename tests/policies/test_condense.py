import pytest

from policies.condense import LEAST, affordable, condense
from policies.plan import Evict, Summarize
from policies.types import Kind
from tests.policies.sample_windows import slot, window

BEFORE = window(
    slot("s0", tokens=100, reference_count=2),
    slot("s1", "assistant", 300),
    slot("s2", tokens=150, reference_count=1),
    slot("s3", "tool", 400),
    slot("s4", tokens=20),
    slot("s5", kind=Kind.RECALL, tokens=500),
    slot("s6", "tool", 500, orphan=True),
    slot("s7", tokens=10, pinned=True),
    slot("s8", "tool", 500),
)
CLUSTERS = {"s0": 0, "s1": 1, "s2": 0, "s3": 1, "s4": 2, "s5": 0, "s6": 0, "s8": 0}
ALL = [Evict(f"s{i}", 0.0, "why") for i in (5, 6, 2, 0, 1, 3, 4, 8)]


def summaries(room: int, most: int = 200, **changes: int) -> list[Summarize]:
    actions = condense(ALL, CLUSTERS | changes, BEFORE, room, most)
    return [action for action in actions if isinstance(action, Summarize)]


def test_each_cluster_that_loses_much_gets_a_summary_the_largest_first() -> None:
    found = summaries(1000)
    assert [(action.slots, action.tokens) for action in found] == [(("s1", "s3"), 200), (("s0", "s2"), 125)]
    assert [(action.references, action.priority) for action in found] == [(0, 70), (3, 70)]


def test_what_is_not_summarised_is_evicted() -> None:
    """Quotes and orphans, what follows the prompt, and what is so little that a note would not be shorter."""
    actions = condense(ALL, CLUSTERS, BEFORE, 1000, 200)
    assert [action.slot for action in actions if isinstance(action, Evict)] == ["s5", "s6", "s4", "s8"]


@pytest.mark.parametrize(
    ("room", "tokens"), [(0, []), (LEAST - 1, []), (LEAST, [LEAST]), (299, [200, 99]), (250, [200])]
)
def test_summaries_stay_within_the_room(room: int, tokens: list[int]) -> None:
    assert [action.tokens for action in summaries(room)] == tokens


def test_an_earlier_summary_is_taken_in_before_others_are_made() -> None:
    earlier = window(
        slot("s0", tokens=300),
        slot("s1", tokens=100, kind=Kind.SUMMARY),
        slot("s2", tokens=150),
        slot("s3", pinned=True),
    )
    evictions = [Evict(f"s{i}", 0.0, "why") for i in range(3)]
    actions = condense(evictions, {"s0": 0, "s1": 1, "s2": 1}, earlier, LEAST, 200)
    assert [action.slots for action in actions if isinstance(action, Summarize)] == [("s1", "s2")]


@pytest.mark.parametrize(
    ("reserve", "most", "tokens"), [(500, 200, 500), (LEAST - 1, 200, 0), (500, 0, 0), (500, LEAST - 1, 0)]
)
def test_nothing_is_kept_free_where_no_summary_can_be_written(reserve: int, most: int, tokens: int) -> None:
    assert affordable(reserve, most) == tokens
