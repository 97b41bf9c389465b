"""When a request gets a recall note, where, and how large: notes keep within their share, and move no prefix. (pure)"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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

PLAINLY = 0.72  # how plainly a prompt points back that gets all that a note may take, while no other is live
MORE = 0.1  # how much more it takes once notes have all of the share
NARROW = 0.37  # as much below that, a prompt gets nothing; between, its part grows as the square
WORTH = 60  # tokens: a smaller note for such a prompt says little, and takes the room of others


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


def part(live: int, share_tokens: int, plain: float, *, whole: bool = False) -> int:
    """Tokens that a note is worth to a prompt that points back `plain`ly (see `pointing.strength`), 0 and more.

    It is at most half of what `live` notes have left of the share: the more they have taken, the more plainly a prompt
    has to point back, and one that does so less gets less: a few messages where the share is large, and nothing where
    that would be a piece of one. Or up to the `whole` of it: where no cache is at stake, a cut can make room for the
    next note.
    """
    most = max(0, share_tokens - live) / (1 if whole else 2)
    bar = PLAINLY + MORE * live / max(share_tokens, 1)
    less = int(most * max(0.0, 1 + (plain - bar) / NARROW) ** 2)
    if plain >= bar:
        return int(most)
    return less if less >= WORTH else 0


def taken(prompt: Prompt) -> int:
    """Tokens of the live recall notes."""
    return sum(placed.tokens for placed in prompt.notes if placed.note.kind is Kind.RECALL)


def limit(
    prompt: Prompt, share_tokens: int, most: int, *, plain: float, last: bool = False, whole: bool = False
) -> int:
    """Tokens for one more note: its `part`, up to the `whole` of what is left, within a prompt of `most` tokens.

    All that is left of the share, where it is the `last` note: nothing follows on a request that stands for itself.
    """
    live = taken(prompt)
    return min(share_tokens - live if last else part(live, share_tokens, plain, whole=whole), most - prompt.used)


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
