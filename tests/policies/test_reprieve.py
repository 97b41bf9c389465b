from hypothesis import given
from hypothesis import strategies as st

from policies.fifo import Fifo
from policies.plan import Evict, Plan, apply, check
from policies.reprieve import reprieve
from policies.types import Context, Kind, Slot, Window
from tests.policies.sample_windows import slot, window


def result(id_: str, tokens: int = 10, text: str = "done", *, orphan: bool = False) -> Slot:
    return slot(id_, "tool", kind=Kind.TOOL, tokens=tokens, text=text, orphan=orphan)


def left(before: Window, target: int) -> list[str]:
    plan = reprieve(Fifo().plan(before, target, Context()), before, target, Context())
    check(plan, before)
    return [one.id for one in apply(plan, before).slots]


def test_what_fits_after_a_large_result_has_gone_stays() -> None:
    before = window(slot("u0", pinned=True), result("t1"), result("t2", 100), result("t3"), result("t4"))
    assert left(before, 40) == ["u0", "t1", "t3", "t4"]
    assert left(before, 39) == ["u0", "t3", "t4"]


def test_of_equals_what_is_still_spoken_of_stays() -> None:
    before = window(
        slot("u0", pinned=True),
        result("t1", text="made order_17"),
        result("t2", text="made order_18"),
        result("t3", 100),
        result("t4", text="shipped order_17"),
    )
    assert left(before, 30) == ["u0", "t1", "t4"]


def test_what_came_before_the_prompt_and_orphans_are_not_for_it_to_decide() -> None:
    before = window(
        result("t0"), result("t1", 100), slot("u2", pinned=True), result("t3", orphan=True), result("t4", 50)
    )
    plan = Plan("mine", tuple(Evict(id_, None, "why not") for id_ in ("t0", "t1", "t3")))
    assert reprieve(plan, before, 100, Context()) == plan


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    prompt=st.integers(0, 11),
    target=st.integers(1, 400),
)
def test_it_takes_evictions_back_and_keeps_to_the_target(sizes: list[int], prompt: int, target: int) -> None:
    slots = [result(f"t{n}", size, f"id_{n % 3}") for n, size in enumerate(sizes)]
    slots.insert(prompt, slot("u", pinned=True))
    before = window(*slots)
    plan = Fifo().plan(before, target, Context())
    after = reprieve(plan, before, target, Context())
    check(after, before)
    assert set(after.actions) <= set(plan.actions)
    assert apply(after, before).used <= max(target, apply(plan, before).used)
    gone = {action.slot for action in after.actions if isinstance(action, Evict)}
    late = [one for one in slots[slots.index(next(s for s in slots if s.id == "u")) :] if one.id in gone]
    assert all(apply(after, before).used + one.tokens > target for one in late), "what fits stays"
