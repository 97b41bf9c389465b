"""One decision: a window and a target in; a new ledger, and what happened to which slot, out. (pure)"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from policies.fifo import Fifo
from policies.plan import Evict, Plan, Shrink, apply, check
from policies.types import Context, Policy, Window
from proxy.conversations.ledger import Ledger
from proxy.errors import ClientError
from proxy.guard import Faults
from proxy.pipeline.overflow import force, pinned_summary, truncate
from proxy.pipeline.prompt import Prompt, slot_id
from proxy.pipeline.record import Write, Written, record, write
from proxy.route import OnOverflow, Route


@dataclass(frozen=True, slots=True)
class Fate:
    """What a decision did to one slot: `action` is evict, shrink, summarize or recall."""

    action: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`policy` names the one whose plan was carried out: the route's, or the fallback.

    `fates` maps slot ids to what happened to them; `unfit`: over the budget when all was done; `overflowed`: the
    policy's plan alone did not bring the prompt under its budget.
    """

    policy: str
    ledger: Ledger
    fates: Mapping[str, Fate]
    overflowed: bool = False
    unfit: bool = False


def decide(
    policy: Policy,
    prompt: Prompt,
    window: Window,
    target: int,
    context: Context,
    *,
    ledger: Ledger,
    on_overflow: OnOverflow,
    room: int,
    recount: Callable[[Ledger], Prompt],
    faults: Faults,
    writer: Write | None = None,
    merge: bool = False,
) -> Decision:
    """Cut a prompt down to `target` tokens: one policy pass, and one overflow pass where that left it over the budget.

    `recount` gives the prompt under another ledger. What is shortened is shortened to `room` tokens: cut to the
    budget's last token, it would be cut again, into other bytes, with the next message. `writer` makes summaries,
    and `merge` puts them into the messages behind them; without one, what was to be summarised is evicted.

    Raises:
        ClientError: 400 context_length_exceeded, where it does not fit and the route says reject.
    """
    written = write(_plan(policy, window, target, context, faults), prompt, ledger, writer, merge=merge)
    plan = written.plan
    fates = dict(_fates(plan))
    cut = record(written, prompt, ledger)
    left = apply(plan, window, context.count)
    if written.notes:
        left = replace(left, used=recount(cut).used)  # summaries cost less than they might
    if left.used <= window.budget:
        return Decision(policy=plan.policy, ledger=cut, fates=fates)
    if on_overflow is OnOverflow.REJECT:
        raise ClientError(
            400,
            "context_length_exceeded",
            f"This request needs {left.used} tokens after everything that may be dropped is gone, and its budget is "
            f"{window.budget}: {pinned_summary(left)}. Shorten these, or raise the route's window.",
            "messages",
        )
    if on_overflow is OnOverflow.FORCE:
        forced = force(left, window.budget)
        fates |= {action.slot: Fate("evict", action.score, action.reason) for action in forced}
        cut = record(Written(Plan(plan.policy, forced)), prompt, cut)
    if on_overflow is OnOverflow.TRUNCATE:
        cuts = truncate(recount(cut), left, min(room, window.budget), context.count)
        cut = replace(cut, truncations={**cut.truncations, **cuts})
        for group in prompt.groups:
            if any(i in cuts for i in group.messages):
                fates[slot_id(group)] = Fate("shrink", None, "shortened in the middle: the prompt was over the budget")
    unfit = recount(cut).used > window.budget
    return Decision(policy=plan.policy, ledger=cut, fates=fates, overflowed=True, unfit=unfit)


def weights(policy: Policy, seen: Window, context: Context) -> dict[str, object] | None:
    """The weights that a policy decides with and why, where it has any to tell."""
    told = getattr(policy, "weights", None)
    if callable(told):
        told = told(seen, context)
    if isinstance(told, tuple) and len(told) == 2:
        return {"alpha": round(told[0], 4), "beta": round(told[1], 4)}
    found = {name: getattr(told, name) for name in ("alpha", "beta", "why") if hasattr(told, name)}
    return {name: round(each, 4) if isinstance(each, float) else each for name, each in found.items()} or None


def zoned(route: Route) -> Route:
    """The route for a policy that protects by itself what it keeps."""
    return replace(route, protect_last=0, keep_prefix=0.0, pins=replace(route.pins, first_user=False))


def _plan(policy: Policy, window: Window, target: int, context: Context, faults: Faults) -> Plan:
    """The policy's plan where it raises nothing and breaks no promise, else fifo's."""
    with faults.guard("policy"):
        plan = policy.plan(window, target, context)
        check(plan, window, context.count)
        return plan
    return Fifo().plan(window, target, context)


def _fates(plan: Plan) -> Iterator[tuple[str, Fate]]:
    for action in plan.actions:
        if isinstance(action, Evict):
            yield action.slot, Fate("evict", action.score, action.reason)
        elif isinstance(action, Shrink):
            yield action.slot, Fate("shrink", None, action.reason)
        else:
            yield from ((id_, Fate("summarize", None, action.reason)) for id_ in action.slots)
