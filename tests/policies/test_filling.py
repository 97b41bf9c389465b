from policies.filling import evict_others, left, room, select, units
from policies.plan import Plan, apply
from policies.types import Kind
from tests.policies.sample_windows import slot, talk, window


def ids(slots: object) -> list[str]:
    return [one.id for one in slots]  # type: ignore[attr-defined]


def test_the_room_is_what_the_target_leaves_beside_what_has_to_stay() -> None:
    before = talk("S U* A U A! U A U* T", overhead=7)
    free = room(before, 80)
    assert ids(free.candidates) == ["A2", "U3", "U5", "A6"]
    assert free.tokens == 80 - 7 - 10 * 5  # what follows the prompt goes only when nothing before it is left


def test_orphans_and_recall_notes_take_no_room() -> None:
    before = window(
        slot("o1", "tool", orphan=True),
        slot("n2", kind=Kind.RECALL),
        slot("n3", kind=Kind.SUMMARY),
        slot("u4", pinned=True),
    )
    free = room(before, 25)
    assert ids(free.candidates) == ["n3"]
    assert free.tokens == 15


def test_there_is_no_room_under_nothing() -> None:
    assert room(talk("S U* A U*"), 5).tokens == 0


def test_where_turns_alternate_half_an_exchange_that_has_to_stay_takes_room() -> None:
    before = talk("S U* A U A U! A U*", alternate=True)
    free = room(before, 60)
    assert ids(free.candidates) == ["U3", "A4"]
    assert free.tokens == 60 - 10 * 6


def test_where_turns_alternate_question_and_answer_are_one_unit() -> None:
    before = talk("S U T A U A A U*", alternate=True)
    assert [ids(unit) for unit in units(before, before.slots[1:-1])] == [["U1", "A3"], ["T2"], ["U4", "A5"], ["A6"]]


def test_where_turns_are_free_every_slot_is_a_unit() -> None:
    before = talk("S U A U*")
    assert [ids(unit) for unit in units(before, before.slots[1:3])] == [["U1"], ["A2"]]


def test_a_unit_that_does_not_fit_makes_way_for_one_that_does() -> None:
    large, small, tiny = (
        (slot("s1", tokens=60), slot("s2", tokens=50)),
        (slot("s3", tokens=30),),
        (slot("s4", tokens=5),),
    )
    assert select([large, small, tiny], 100) == {"s3", "s4"}
    assert select([small, large, tiny], 140) == {"s3", "s1", "s2"}


def test_what_is_kept_goes_only_when_the_rest_is_gone() -> None:
    before = talk("S U A U A U*")
    value = {"U1": 0.9, "A2": 0.1, "U3": 0.5, "A4": 0.7}
    kept = frozenset({"A2", "U3"})
    reasons = dict.fromkeys(value, "worth little")
    evictions = evict_others(before, 30, kept, value, {"A2": 2.0, "U3": 1.0}, lambda one: reasons[one.id])
    assert [eviction.slot for eviction in evictions] == ["A4", "U1", "U3"]
    assert left(before, evictions) == apply(Plan("mine", evictions), before).used == 30


def test_recall_notes_go_first_and_tool_slots_after_the_prompt_last() -> None:
    before = window(slot("u1"), slot("n2", kind=Kind.RECALL), slot("u3", pinned=True), slot("t4", "tool"))
    evictions = evict_others(before, 10, frozenset(), {"u1": 0.0}, {}, lambda _: "worth little")
    assert [(e.slot, e.reason) for e in evictions] == [
        ("n2", "a recall note, made anew when it is needed"),
        ("u1", "worth little"),
        ("t4", "follows the prompt: oldest first when nothing before it is left"),
    ]
