import pytest

from policies.turns import ages, breaks, last_user, opens_with_user
from policies.types import Context
from tests.policies.sample_windows import slot, talk, window


@pytest.mark.parametrize(
    ("line", "expected"), [("S U A U", 0), ("U T A D U", 0), ("U U A A A", 3), ("T T", 0), ("", 0)]
)
def test_breaks_count_turns_of_one_role_in_a_row(line: str, expected: int) -> None:
    assert breaks(talk(line).slots) == expected


@pytest.mark.parametrize(("line", "expected"), [("S U A", True), ("S T U", False), ("S D", True), ("A U", False)])
def test_instructions_do_not_open_a_conversation(line: str, expected: bool) -> None:
    assert opens_with_user(talk(line).slots) is expected


@pytest.mark.parametrize(("line", "expected"), [("U A U A", 2), ("A A", 2), ("U T T", 0)])
def test_the_last_user_message_is_found(line: str, expected: int) -> None:
    assert last_user(talk(line).slots) == expected


def test_age_is_how_many_slots_came_after() -> None:
    assert ages(window(slot("a3"), slot("b7"), slot("c9")), Context(now=60.0), "turns") == (
        {"a3": 6, "b7": 2, "c9": 0},
        "turns",
    )


def test_minutes_are_used_where_every_evictable_slot_has_a_time() -> None:
    before = window(slot("s0", "system", pinned=True), slot("a1", created_at=60.0), slot("b2", created_at=240.0))
    assert ages(before, Context(now=180.0), "minutes") == ({"a1": 2, "b2": 0}, "minutes")


@pytest.mark.parametrize(("created", "now"), [(None, 180.0), (60.0, None)], ids=["no-time", "no-clock"])
def test_minutes_fall_back_to_turns(created: float | None, now: float | None) -> None:
    before = window(slot("a1", created_at=created), slot("b2", created_at=90.0))
    assert ages(before, Context(now=now), "minutes") == ({"a1": 1, "b2": 0}, "turns")
