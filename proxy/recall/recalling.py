"""When a request gets a recall note, where, and how large: notes keep within their share, and move no prefix. (pure)"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from policies.relevance import Passage, coverage
from policies.terms import read
from policies.types import Kind, Policy, reads_prompt
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Note
from proxy.conversations.placed import takes_notes
from proxy.pipeline.gathering import last_user
from proxy.pipeline.prompt import Prompt
from proxy.pipeline.record import outside
from proxy.recall import choose
from proxy.recall.library import Library
from proxy.recall.missing import missing, named_results
from proxy.route import Route
from proxy.wire.chat import Message
from proxy.wire.grouping import Group

CLEARLY, MUCH = 1.5, 0.4  # times as much as what is new has; of the prompt's terms, by weight
THIRD, EIGHTH = 3, 8  # a note takes at most such a part of what earlier notes have left
WORTHWHILE = 100  # tokens: an eighth that is less is left for a prompt that asks


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """How tokens are counted here: of a text by itself, and what a note adds to a prompt."""

    text: Callable[[str], int]
    note: Callable[[Note], int]


def share(route: Route, policy: Policy, budget: int) -> int:
    """Tokens that all live recall notes may take together; 0 where the policy does not look at the prompt."""
    return int(route.recall_budget * budget) if reads_prompt(policy) else 0


def wanted(messages: Sequence[Message]) -> bool:
    """Whether a request asks something that a note can stand before: in a tool loop it would move the prefix."""
    query = last_user(messages)
    return query is not None and not any(m.calls or m.answers is not None for m in messages[query + 1 :])


def forgotten(ledger: Ledger) -> bool:
    """Whether there is anything that could come back."""
    return bool(ledger.drops or ledger.clears or ledger.truncations)


def without_recall(ledger: Ledger) -> Ledger:
    """The ledger as a cut begins with it: every recall note goes."""
    return replace(ledger, notes=tuple(note for note in ledger.notes if note.kind is not Kind.RECALL))


def points_back(query: str, old: Sequence[Passage], new: Sequence[Passage], everything: Sequence[Passage]) -> bool:
    """Whether a prompt means old passages rather than new ones: by what share of its terms they have.

    It has to ask, by a question mark, or to have much of its words there.
    """
    asked = read(query)
    there = max(coverage(asked, old, everything), default=0.0)
    here = max(coverage(asked, new, everything), default=0.0)
    return there > CLEARLY * here and (there >= MUCH or "?" in query or "？" in query)


def limit(prompt: Prompt, share_tokens: int, most: int, *, asks: bool, last: bool = False) -> int:
    """Tokens for one more note: at most a third of what is left of the share, within a prompt of `most` tokens.

    A prompt that merely goes on gets an eighth, while that is worthwhile: the rest is for one that `asks` for what was
    left out. All that is left, where it is the `last` note: nothing follows on a request that stands for itself.
    """
    live = sum(placed.tokens for placed in prompt.notes if placed.note.kind is Kind.RECALL)
    left = share_tokens - live
    if last:
        part = left
    elif asks:
        part = left // THIRD
    else:
        part = left // EIGHTH if left >= EIGHTH * WORTHWHILE else 0
    return min(part, most - prompt.used)


def recalled(
    ledger: Ledger,
    messages: Sequence[Message],
    groups: Sequence[Group],
    scores: Mapping[int, float],
    room: int,
    *,
    exclude_tools: frozenset[str],
    merge: bool,
    library: Library,
    costs: Costs,
) -> Note | None:
    """A note of at most `room` tokens right before the current prompt, None where nothing is worth one."""
    query = last_user(messages)
    if query is None or room <= 0 or (merge and not takes_notes(messages[query])):
        return None
    excluded = named_results(messages, groups, exclude_tools)
    lacking = {
        i: spans
        for i in sorted({*ledger.drops, *ledger.clears, *ledger.truncations})
        if i < len(messages) and i != query and i not in excluded and (spans := missing(ledger, i, messages[i]))
    }
    note = Note(kind=Kind.RECALL, before=query if merge else outside(groups, query), merge=merge)
    return choose(
        note,
        messages,
        lacking,
        scores,
        messages[query].text,
        room,
        library=library,
        count=costs.text,
        cost=costs.note,
    )
