from policies.clear_tool_results import ClearToolResults
from policies.plan import Evict, Shrink, apply
from policies.types import Context, Window
from tests.policies.sample_windows import slot, window

POLICY = ClearToolResults(placeholder="cleared", keep=2)  # two tokens at four characters a token


def agent(**changes: dict[str, object]) -> Window:
    """One user message, then tool groups of 100 tokens, 90 of them results."""
    tools = {f"t{i}": {"results": 1, "result_tokens": 90} | changes.get(f"t{i}", {}) for i in range(2, 8)}
    groups = [slot(id_, "tool", 100, **fields) for id_, fields in tools.items()]
    return window(slot("u1", pinned=True), *groups)


def did(policy: ClearToolResults, before: Window, target: int) -> str:
    marks = {Shrink: "-", Evict: "!"}
    actions = policy.plan(before, target, Context()).actions
    return " ".join(f"{marks[type(action)]}{action.slot}" for action in actions if not hasattr(action, "slots"))


def test_the_oldest_results_are_cleared_until_the_target_is_met() -> None:
    assert did(POLICY, agent(), 435) == "-t2 -t3"


def test_the_last_results_stay_until_slots_have_to_go() -> None:
    assert did(POLICY, agent(), 258) == "-t2 -t3 -t4 -t5"
    assert did(POLICY, agent(), 257) == "-t3 -t4 -t5 !t2"


def test_a_group_of_several_results_counts_each() -> None:
    keep_three = ClearToolResults(placeholder="cleared", keep=3)
    assert did(keep_three, agent(t6={"results": 2}), 258) == "-t2 -t3 -t4 -t5"
    assert did(keep_three, agent(t6={"results": 1}), 346) == "-t2 -t3 -t4"


def test_what_is_no_longer_than_the_placeholder_is_left() -> None:
    assert did(POLICY, agent(t2={"result_tokens": 2}, t3={"result_tokens": 3}), 605) == "-t3 -t4"


def test_pinned_and_protected_groups_and_orphans_are_not_cleared() -> None:
    before = agent(t2={"pinned": True}, t3={"protected": True}, t4={"orphan": True})
    assert did(POLICY, before, 522) == "-t5"
    assert did(POLICY, before, 500) == "-t5 !t4"


def test_clearing_says_what_it_saved_and_is_final() -> None:
    plan = POLICY.plan(agent(), 435, Context())
    assert plan.actions[0] == Shrink("t2", "cleared", "old tool results cleared: 88 tokens saved")
    after = apply(plan, agent(), Context().count)
    assert after.used == 610 - 2 * 88
    assert not POLICY.plan(after, 435, Context()).actions


def test_results_are_counted_with_the_counter_of_the_context() -> None:
    plan = POLICY.plan(agent(), 530, Context(count=len))
    assert [action.reason for action in plan.actions] == ["old tool results cleared: 83 tokens saved"]


def test_the_default_placeholder_tells_the_model_what_to_do() -> None:
    assert "Call the tool again" in ClearToolResults().placeholder
