"""The order in which slots go, whatever ranks them."""

import math
import time
from dataclasses import replace

import pytest

from policies.errors import PolicyError
from policies.greedy import evict_lowest
from policies.types import Window
from tests.policies.sample_windows import slot, talk, window


def gone(before: Window, target: int, **scores: float) -> str:
    """What goes, in order, where slots without a score rank by turn."""
    evictions = evict_lowest(before, target, lambda one: scores.get(one.id, one.turn), "why")
    return " ".join(action.slot for action in evictions)


def test_the_lowest_score_goes_first_and_it_ends_at_the_target() -> None:
    assert gone(talk("U A U A U*"), 30, A3=-1) == "A3 U0"


def test_nothing_goes_from_what_fits() -> None:
    assert gone(talk("U A U"), 30) == ""


def test_pinned_and_protected_slots_stay_even_if_the_target_is_missed() -> None:
    assert gone(talk("S D U* A U! A! U*"), 0) == "A3"


def test_of_equal_scores_the_older_goes_first_then_the_larger() -> None:
    slots = (slot("a", turn=2), slot("b", turn=1, tokens=5), slot("c", turn=1, tokens=9), slot("u3", pinned=True))
    assert gone(window(*slots), 10, a=1, b=1, c=1) == "c b a"


def test_orphans_go_before_everything_else() -> None:
    orphan = slot("x3", "tool", orphan=True)
    assert gone(window(slot("u1"), slot("a2", "assistant"), orphan, slot("u4", pinned=True)), 25) == "x3 u1"


def test_what_came_after_the_last_user_message_goes_last_and_oldest_first() -> None:
    agent = talk("S U* T T T! T!")
    assert gone(agent, 45, T2=9, T3=1) == "T2 T3"
    assert gone(talk("U A U* T T"), 0, U0=5, A1=4, T3=2, T4=1) == "A1 U0 T3 T4"


def test_a_note_is_not_the_last_user_message() -> None:
    agent = talk("U* T T T")
    noted = replace(agent, slots=(*agent.slots[:3], replace(agent.slots[3], role="user", kind="summary")))
    assert gone(noted, 30, T2=-1, T3=-2) == "T1"


ALTERNATE = [
    ("question-with-its-answer", "U A U A U*", {}, 30, "U0 A1"),
    ("answer-with-its-question", "U A U A U*", {"A3": -1}, 30, "A3 U2"),
    ("tools-go-alone", "U T A U A U*", {"T1": -1}, 50, "T1"),
    ("whole-exchanges-before-pairs-across", "U* A U A U A U*", {"A1": -9}, 50, "U2 A3"),
    ("across-when-nothing-else", "U* A U A! U*", {}, 0, "A1 U2"),
    ("across-before-the-latest-tools", "U* A U A! U* T", {}, 50, "A1 U2"),
    ("no-partner-stays", "U* A U* A! U*", {}, 0, ""),
    ("no-partner-yet", "U A A U U*", {}, 10, "U0 A1 A2 U3"),
    ("two-that-waited-meet", "A A U U U*", {"A0": -4, "U3": -3, "A1": -2, "U2": -1}, 10, "A1 U2 A0 U3"),
    ("a-partner-appears", "A A U U*", {"A0": -2, "A1": -1}, 20, "A1 U2"),
]


@pytest.mark.parametrize(("_id", "line", "scores", "target", "expected"), ALTERNATE, ids=[c[0] for c in ALTERNATE])
def test_where_turns_alternate_they_go_in_pairs(
    _id: str, line: str, scores: dict[str, float], target: int, expected: str
) -> None:
    assert gone(talk(line, alternate=True), target, **scores) == expected


USER_FIRST = [
    ("answer-follows-its-question", "S U A U A U*", {}, 55, "U1 A2"),
    ("whole-first-turn-goes", "S U T T A U A U*", {}, 75, "U1 T2 T3 A4"),
    ("later-turns-are-free", "S U A U A U*", {"A4": -1}, 55, "A4"),
    ("stays-before-a-protected-answer", "S U A! U A U*", {}, 0, "U3 A4"),
    ("stays-before-a-pinned-tool", "S U A T* U U*", {}, 0, "A2 U4"),
    ("greeting-goes-first", "S A T U A U*", {"A4": -9}, 35, "A1 T2 A4"),
    ("pinned-greeting-lifts-the-rule", "S A* U A U*", {}, 35, "U2 A3"),
]


@pytest.mark.parametrize(("_id", "line", "scores", "target", "expected"), USER_FIRST, ids=[c[0] for c in USER_FIRST])
def test_where_a_user_must_be_first_one_stays_first(
    _id: str, line: str, scores: dict[str, float], target: int, expected: str
) -> None:
    assert gone(talk(line, user_first=True), target, **scores) == expected


def test_both_rules_hold_together() -> None:
    assert gone(talk("S U T A U A U*", alternate=True, user_first=True), 55) == "U1 A3 T2"


def test_what_is_taken_along_says_so() -> None:
    before = talk("U T A U*", alternate=True, user_first=True)
    assert [action.reason for action in evict_lowest(before, 15, {"U0": 0, "T1": 9, "A2": 5}, "oldest first")] == [
        "oldest first",
        "oldest first; taken along so that turns alternate",
        "oldest first; taken along so that a user's message is first",
    ]


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(PolicyError, match="score of slot 'U0': must be a number, got nan"):
        gone(talk("U A U*"), 0, U0=math.nan)


@pytest.mark.parametrize("rules", [{}, {"alternate": True, "user_first": True}], ids=["free", "strict"])
def test_five_thousand_slots_take_milliseconds(rules: dict[str, bool]) -> None:
    before = talk(" ".join(("U", "T", "A") * 1700), **rules)
    scores = {one.id: (one.turn * 7919) % 5003 for one in before.slots}
    taken = []
    for _ in range(3):
        started = time.thread_time()
        assert len(evict_lowest(before, before.used // 10, scores, "why")) > 4500
        taken.append(time.thread_time() - started)
    assert min(taken) < 0.2  # seconds of work: ten times what it takes


def test_a_long_first_turn_does_not_cost_a_search_for_each_slot() -> None:
    before = talk("U! " + "T " * 5000 + "A! U*", alternate=True, user_first=True)
    started = time.thread_time()
    assert len(evict_lowest(before, 0, lambda one: -one.turn, "why")) == 5000
    assert time.thread_time() - started < 0.3
