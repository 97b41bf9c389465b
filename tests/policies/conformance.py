"""What every policy promises, as functions that raise AssertionError for one that does not keep it.

A policy of another package is held to them by calling `conforms` on windows of its own.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from policies.errors import PlanError
from policies.plan import Evict, Plan, Shrink, Summarize, apply, check
from policies.turns import is_turn
from policies.types import Context, Kind, Need, Policy, Slot, Window


def conforms(policy: Policy, window: Window, target: int, context: Context) -> Plan:
    """All promises at once; gives the plan. What a policy with a zone of its own protects is protected beforehand."""
    window = zoned(policy, window, context)
    plan = policy.plan(window, target, context)
    assert plan.policy == policy.name
    if window.used <= target:
        assert not plan.actions, "a window that fits was touched"
        return plan
    assert policy.plan(window, target, context) == plan, "the same window gave another plan"
    check(plan, window, context.count)
    after = apply(plan, window, context.count)
    _touches_nothing_else(plan, window, after)
    _summarises_what_can_be(plan, policy, window, after, context)
    assert after.used == after.overhead + sum(slot.tokens for slot in after.slots)
    if after.used > target:
        for more in _more(after):
            assert not _allowed(more, after, context), f"{more} could have gone too"
    assert not policy.plan(after, target, context).actions, "planning again changed something"
    return plan


def zoned(policy: Policy, window: Window, context: Context) -> Window:
    """The window with the policy's own zone protected; as it is for one that has none."""
    if not getattr(policy, "own_zone", False):
        return window
    zone: frozenset[str] = policy.zone(window, context)  # type: ignore[attr-defined]
    return replace(window, slots=tuple(replace(s, protected=s.protected or s.id in zone) for s in window.slots))


def _touches_nothing_else(plan: Plan, window: Window, after: Window) -> None:
    left = {slot.id: slot for slot in after.slots}
    assert list(left) == [slot.id for slot in window.slots if slot.id in left], "the order changed"
    touched = {action.slot for action in plan.actions if isinstance(action, Evict | Shrink)}
    touched.update(id_ for action in plan.actions if isinstance(action, Summarize) for id_ in action.slots)
    for slot in window.slots:
        if slot.id not in touched:
            assert left[slot.id] == slot
        assert slot.evictable or slot.id not in touched
    assert all(action.reason for action in plan.actions), "an action without a reason"
    texts = {slot.text for slot in window.slots if len(slot.text) > 3}
    assert not any(text in action.reason for action in plan.actions for text in texts), "a reason quotes a message"


def _summarises_what_can_be(plan: Plan, policy: Policy, window: Window, after: Window, context: Context) -> None:
    summaries = [action for action in plan.actions if isinstance(action, Summarize)]
    if not summaries:
        return
    assert Need.SUMMARIES in policy.needs, "a summary that nobody was asked for"
    before = {slot.id: slot for slot in window.slots}
    left = {slot.id: slot for slot in after.slots}
    for action in summaries:
        assert action.tokens <= context.summary_tokens, "a summary longer than one may be"
        covered: list[Slot] = [before[id_] for id_ in action.slots]
        assert not any(slot.orphan or slot.kind is Kind.RECALL for slot in covered), "a summary of quotes or orphans"
        assert action.references == sum(slot.reference_count for slot in covered)
        oldest = next(slot for slot in window.slots if slot.id in action.slots)
        assert left[oldest.id].kind is Kind.SUMMARY, "no summary where its oldest stood"


def _more(window: Window) -> Iterator[tuple[str, ...]]:
    """What could still go: a slot that is no turn alone, and turns in neighbouring pairs where they must alternate.

    Where a user's must be first, each also together with what it would leave before the next user message.
    """
    turns = [slot for slot in window.slots if is_turn(slot)]
    if window.alternate:
        steps = [(one.id, two.id) for one, two in itertools.pairwise(turns) if one.role != two.role]
        steps += [(slot.id,) for slot in window.slots if not is_turn(slot)]
    else:
        steps = [(slot.id,) for slot in window.slots]
    for step in steps:
        left = [slot for slot in window.slots if slot.id not in step and slot.role not in ("system", "developer")]
        until = next((i for i, slot in enumerate(left) if slot.role == "user"), len(left))
        yield step
        if window.user_first and until:
            yield (*step, *(slot.id for slot in left[:until]))


def _allowed(ids: tuple[str, ...], window: Window, context: Context) -> bool:
    try:
        check(Plan("more", tuple(Evict(id_, None, "more") for id_ in ids)), window, context.count)
    except PlanError:
        return False
    return True
