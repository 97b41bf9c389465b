"""A decision as data, the check that refuses one that breaks a promise, and the window it leaves."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from policies.errors import PlanError
from policies.turns import breaks, opens_with_user
from policies.types import Kind, Slot, Window, length


@dataclass(frozen=True, slots=True)
class Evict:
    """The slot with this id leaves the prompt."""

    slot: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """Every tool result of the slot with this id is replaced by `text`; the calls stay."""

    slot: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summarize:
    """The slots with these ids become one summary slot at the place of the oldest.

    `tokens` is the most that the summary may cost in the prompt, framing included; what it comes to is known when it
    is written. `priority` and `references` are those of the slot that stands for them from then on.
    """

    slots: tuple[str, ...]
    reason: str
    tokens: int
    priority: int = 70
    references: int = 0


Action = Evict | Shrink | Summarize


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants done to a window, in the order it decided it."""

    policy: str
    actions: tuple[Action, ...] = ()


def check(plan: Plan, window: Window, count: Callable[[str], int] = length) -> None:
    """Raise PlanError for a plan that breaks a promise; `count` gives the tokens of a text.

    Refused: slots that are not in the window, a slot in two actions, a pinned or protected slot, a summary of
    nothing, a shortening that is empty or that has no tool result to replace, a shortening or a summary that saves
    nothing; and, where the window asks for it, turns that alternate less than before and a user's turn that is no
    longer first.
    """
    slots = {slot.id: slot for slot in window.slots}
    touched: set[str] = set()
    for action in plan.actions:
        for id_ in _ids(action):
            where = f"plan of {plan.policy}: {_verb(action)} slot {id_!r}"
            if (slot := slots.get(id_)) is None:
                raise PlanError(f"{where}, which is not in the window")
            if id_ in touched:
                raise PlanError(f"{where}, which an earlier action already touches")
            if not slot.evictable:
                raise PlanError(f"{where}, which is {'pinned' if slot.pinned else 'protected'}")
            touched.add(id_)
            if isinstance(action, Shrink):
                _check_shrink(action, slot, count, where)
        if isinstance(action, Summarize):
            _check_summary(action, slots, f"plan of {plan.policy}: a summary of")
    left = tuple(_left(plan, window))
    if window.alternate and breaks(left) > breaks(window.slots):
        raise PlanError(f"plan of {plan.policy}: user and assistant turns would no longer alternate")
    if window.user_first and opens_with_user(window.slots) and not opens_with_user(left):
        raise PlanError(f"plan of {plan.policy}: the first message left would not be a user's")


def apply(plan: Plan, window: Window, count: Callable[[str], int] = length) -> Window:
    """The window that a checked plan leaves; a summary, not written yet, counts as what it may cost at most.

    `count` gives the tokens of a text. A summary's slot has the id of the oldest slot that it stands for.
    """
    shrunk = {action.slot: action.text for action in plan.actions if isinstance(action, Shrink)}
    slots = tuple(shrink(slot, shrunk[slot.id], count) if slot.id in shrunk else slot for slot in _left(plan, window))
    saved = sum(slot.tokens for slot in window.slots) - sum(slot.tokens for slot in slots)
    return replace(window, slots=slots, used=window.used - saved)


def shrink(slot: Slot, text: str, count: Callable[[str], int]) -> Slot:
    """The slot with each of its tool results replaced by `text`."""
    results = slot.results * count(text)
    return replace(slot, text=text, tokens=slot.tokens - slot.result_tokens + results, result_tokens=results)


def _ids(action: Action) -> tuple[str, ...]:
    return action.slots if isinstance(action, Summarize) else (action.slot,)


def _verb(action: Action) -> str:
    return {Evict: "evicts", Shrink: "shortens", Summarize: "summarises"}[type(action)]


def _check_shrink(action: Shrink, slot: Slot, count: Callable[[str], int], where: str) -> None:
    if not action.text.strip():
        raise PlanError(f"{where} to nothing; an emptied message is refused by upstreams, so give it a text")
    if slot.kind is not Kind.TOOL or slot.results < 1:
        raise PlanError(f"{where}, which has no tool results")
    if (after := slot.results * count(action.text)) >= slot.result_tokens:
        raise PlanError(f"{where} from {slot.result_tokens} to {after} tokens, which saves nothing")


def _check_summary(action: Summarize, slots: Mapping[str, Slot], where: str) -> None:
    if not action.slots:
        raise PlanError(f"{where} no slots")
    before = sum(slots[id_].tokens for id_ in action.slots)
    if action.tokens < 1:
        raise PlanError(f"{where} {len(action.slots)} slots in {action.tokens} tokens; give it 1 at least")
    if action.tokens >= before:
        raise PlanError(
            f"{where} {len(action.slots)} slots from {before} to {action.tokens} tokens, which saves nothing"
        )


def _left(plan: Plan, window: Window) -> Iterator[Slot]:
    """The slots in the order in which they would be sent; a summary stands as a user's note where its oldest stood."""
    gone = {action.slot for action in plan.actions if isinstance(action, Evict)}
    summary = {id_: action for action in plan.actions if isinstance(action, Summarize) for id_ in action.slots}
    written: set[str] = set()
    for slot in window.slots:
        action = summary.get(slot.id)
        if action is None:
            if slot.id not in gone:
                yield slot
        elif slot.id not in written:
            written.update(action.slots)
            yield _summary(action, slot)


def _summary(action: Summarize, oldest: Slot) -> Slot:
    return Slot(
        id=oldest.id,
        role="user",
        kind=Kind.SUMMARY,
        text="",
        tokens=action.tokens,
        turn=oldest.turn,
        created_at=oldest.created_at,
        last_accessed_at=oldest.last_accessed_at,
        priority=action.priority,
        reference_count=action.references,
    )
