"""A plan written into a ledger by message index: what goes, what is replaced, and what notes stand for it. (pure)"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from policies.plan import Evict, Plan, Shrink, Summarize
from policies.types import Kind
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Note, ordered
from proxy.conversations.placed import takes_notes
from proxy.pipeline.prompt import Prompt, slot_id
from proxy.wire.grouping import Group

Write = Callable[[Note, int, Sequence[Note]], Note | None]
"""Gives a summary its quotes, within so many tokens; it takes in the earlier summaries that are given. None: no use."""


@dataclass(frozen=True, slots=True)
class Written:
    """A plan with the summaries that were made for it; one that was of no use has become evictions."""

    plan: Plan
    notes: Mapping[tuple[str, ...], Note] = field(default_factory=dict)


def write(plan: Plan, prompt: Prompt, ledger: Ledger, writer: Write | None, *, merge: bool) -> Written:
    """Make a plan's summaries; `merge` puts them into the messages behind them."""
    if not any(isinstance(action, Summarize) for action in plan.actions):
        return Written(plan)
    actions: list[Evict | Shrink | Summarize] = []
    notes: dict[tuple[str, ...], Note] = {}
    places = {slot_id(group): group for group in prompt.groups}
    for action in plan.actions:
        if not isinstance(action, Summarize):
            actions.append(action)
        elif (note := _summary(action, places, prompt, ledger, writer, merge=merge)) is not None:
            actions.append(action)
            notes[action.slots] = note
        else:
            actions += (Evict(id_, None, f"{action.reason}; no summary of it would be short") for id_ in action.slots)
    return Written(Plan(plan.policy, tuple(actions)), notes)


def record(written: Written, prompt: Prompt, ledger: Ledger) -> Ledger:
    """The ledger with a plan's actions and summaries written down."""
    places = {slot_id(group): group for group in prompt.groups}
    drops = set(ledger.drops)
    clears = dict(ledger.clears)
    notes = {note.id: note for note in ledger.notes}
    for action in written.plan.actions:
        if isinstance(action, Shrink):
            for index in places[action.slot].messages:
                message = prompt.messages[index]
                if message is not None and message.answers is not None:
                    clears[index] = action.text
            continue
        for id_ in (action.slot,) if isinstance(action, Evict) else action.slots:
            group = places.get(id_)
            if group is None or drops.issuperset(group.messages):  # a summary goes by its own name, or its oldest's
                notes = {k: note for k, note in notes.items() if k != id_ and not _stands_for(note, group)}
            else:
                drops.update(group.messages)
        if isinstance(action, Summarize):
            note = written.notes[action.slots]
            notes[note.id] = note
    return replace(
        ledger,
        drops=frozenset(drops),
        clears={i: text for i, text in clears.items() if i not in drops},
        truncations={i: cuts for i, cuts in ledger.truncations.items() if i not in drops and i not in clears},
        notes=settled(notes.values(), prompt, drops),
    )


def settled(notes: Iterable[Note], prompt: Prompt, drops: AbstractSet[int]) -> tuple[Note, ...]:
    """The notes in the order in which they stand, those moved whose message has gone."""
    return ordered(
        place(note, prompt, drops, merge=True) if note.merge and note.before in drops else note for note in notes
    )


def place(note: Note, prompt: Prompt, drops: AbstractSet[int], *, merge: bool) -> Note:
    """The note where it may stand: outside tool groups or, with `merge`, at the beginning of a user's message.

    That is the first one behind its place or, where there is none, the last one before it.
    """
    if merge:
        users = [
            i
            for i, message in enumerate(prompt.messages)
            if message is not None and i not in drops and takes_notes(message)
        ]
        behind = [i for i in users if i >= note.before]
        if users:
            return replace(note, before=behind[0] if behind else users[-1], merge=True)
    return replace(note, before=outside(prompt.groups, note.before), merge=False)


def outside(groups: Sequence[Group], index: int) -> int:
    """The nearest place at or before `index` that does not lie between a call and its results."""
    for group in reversed(groups):
        if group.messages[0] < index <= group.messages[-1]:
            index = group.messages[0]
    return index


def _summary(
    action: Summarize,
    places: Mapping[str, Group],
    prompt: Prompt,
    ledger: Ledger,
    writer: Write | None,
    *,
    merge: bool,
) -> Note | None:
    if writer is None:
        return None
    earlier = [note for note in ledger.notes if note.id in action.slots]
    covers = {i for id_ in action.slots if id_ in places for i in places[id_].messages}
    covers.update(i for note in earlier for i in note.covers)
    before = min([*(note.before for note in earlier if not note.merge), *covers])
    note = Note(
        kind=Kind.SUMMARY,
        before=before,
        covers=tuple(sorted(covers)),
        priority=action.priority,
        references=action.references,
    )
    return writer(place(note, prompt, ledger.drops | covers, merge=merge), action.tokens, earlier)


def _stands_for(note: Note, group: Group | None) -> bool:
    return group is not None and note.kind is Kind.SUMMARY and note.covers[0] == group.messages[0]
