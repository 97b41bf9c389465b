"""The prompt as it would be sent: the client's messages with a ledger applied, counted, and seen as a window. (pure)"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from policies.types import Kind, Slot, Window
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Keys
from proxy.conversations.placed import Placed, place
from proxy.pipeline.budget import LOWEST_TARGET
from proxy.pipeline.keeping import keep
from proxy.pipeline.uses import Said, Use, used
from proxy.pipeline.uses import uses as used_by
from proxy.route import Alternate, Pins, Route
from proxy.wire.chat import UNKNOWN, Message, Text
from proxy.wire.grouping import INSTRUCTIONS, Group, alternates

_NEVER_LEAVE = INSTRUCTIONS | {UNKNOWN}
_TOOL = Kind.TOOL  # looked up once: each look at a member of an enumeration costs as much as a comparison of texts
GROWTH_SLOTS = 64  # how many of the newest slots tell how fast a conversation grows: single results vary tenfold


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`messages` and `tokens` run parallel to the client's messages; a message that is gone is None and costs 0."""

    groups: tuple[Group, ...]
    messages: tuple[Message | None, ...]
    tokens: tuple[int, ...]
    overhead: int
    notes: tuple[Placed, ...] = ()

    @property
    def used(self) -> int:
        """Tokens of the whole prompt, notes and overhead included."""
        return sum(self.tokens) + sum(placed.tokens for placed in self.notes) + self.overhead

    @property
    def growth(self) -> float:
        """Tokens that a turn adds: a turn is one request, a reply with what answers it, of a user or of tools.

        Mean over the newest GROWTH_SLOTS slots that are live, by how many of them a request can end with.
        """
        live = (group for group in reversed(self.groups) if group.role not in INSTRUCTIONS and self.live(group))
        newest = list(islice(live, GROWTH_SLOTS))
        turns = sum(1 for group in newest if group.role != "assistant")
        return sum(self.tokens[i] for group in newest for i in group.messages) / max(1, turns)

    def live(self, group: Group) -> bool:
        """Whether the group is still in the prompt."""
        return self.messages[group.messages[0]] is not None


def assemble(
    messages: Sequence[Message],
    groups: tuple[Group, ...],
    ledger: Ledger,
    overhead: int,
    count: Callable[[Message], int],
    keys: Keys | None = None,
    own: Sequence[int] | None = None,
) -> Prompt:
    """Apply the ledger and count what is left; `keys` are those that its notes were made with.

    `own` are the tokens of the client's messages where they are known: then only what the ledger changes is counted.
    """
    sent: list[Message | None] = list(messages)
    tokens = list(map(count, messages) if own is None else own)
    for index in (*ledger.clears, *ledger.truncations):
        sent[index] = changed = ledger.message(index, messages[index])
        tokens[index] = 0 if changed is None else count(changed)
    for index in ledger.drops:
        sent[index], tokens[index] = None, 0
    notes = tuple(place(ledger.rendered(messages, keys or Keys()), sent, count)) if ledger.notes else ()
    return Prompt(groups=groups, messages=tuple(sent), tokens=tuple(tokens), overhead=overhead, notes=notes)


def slot_id(group: Group) -> str:
    """The name of a slot in plans and audit records: where it begins, so it says nothing of what it holds."""
    return f"m{group.messages[0]}"


def pinned(messages: Sequence[Message], groups: Sequence[Group], pins: Pins, asked: frozenset[int]) -> frozenset[int]:
    """Indexes of the groups that no policy may touch.

    System and developer messages wherever they stand, what states no role and so may be one, the last user message
    (the newest slot where there is none: a prompt of instructions alone asks nothing), a trailing assistant message,
    the first user message, and what the route or the client (`asked`: message indexes) pins.
    """
    users = [g for g, group in enumerate(groups) if group.role == "user"]
    found = {g for g, group in enumerate(groups) if group.role in _NEVER_LEAVE}
    found.update(users[-1:] or [g for g in range(len(groups)) if g not in found][-1:])
    if pins.first_user:
        found.update(users[:1])
    if messages[-1].role == "assistant":
        found.update(g for g, group in enumerate(groups) if len(messages) - 1 in group.messages)
    if asked or pins.tools or pins.text:
        for g, group in enumerate(groups):
            if asked.intersection(group.messages) or _pinned_by_route([messages[i] for i in group.messages], pins):
                found.add(g)
    return frozenset(found)


def _pinned_by_route(messages: Sequence[Message], pins: Pins) -> bool:
    if pins.tools and any(call.name in pins.tools for message in messages for call in message.calls):
        return True
    return bool(pins.text) and any(regex.search(m.text) for m in messages for regex in pins.text)


def window(
    prompt: Prompt,
    original: Sequence[Message],
    route: Route,
    budget: int,
    asked: frozenset[int],
    content: Callable[[Message], int],
    uses: Sequence[Said] | None = None,
    clusters: Mapping[str, int] = MappingProxyType({}),
    first_seen: Callable[[int], float | None] = lambda _: None,
    target: int | None = None,
) -> Window:
    """The live slots of a prompt with their pins and protection, and what the policy needs to know of their use.

    `asked` are the messages that the client pins; `content` gives the tokens of a message's content, `first_seen`
    when a message was first seen, in seconds since the epoch; `uses` what each group takes up, where the policy asks
    for it, and `clusters` those that were prepared, by slot. `target` is what the cut goes down to, in tokens; None:
    the deepest it could be. The oldest slots are protected as far as it can be met beside them.
    """
    pins = pinned(original, prompt.groups, route.pins, asked)
    live = [g for g, group in enumerate(prompt.groups) if prompt.live(group)]
    protected = set(live[-route.protect_last :] if route.protect_last else ())
    seen = {g: first_seen(prompt.groups[g].messages[0]) for g in live}
    taken_up = None if uses is None else used_by(uses, live)
    slots = [
        _slot(
            prompt,
            g,
            id_ := slot_id(prompt.groups[g]),
            content,
            seen,
            use=None if taken_up is None else taken_up.get(g) or Use(g, 0),
            cluster=clusters.get(id_),
            pinned=g in pins,
            protected=g in protected,
        )
        for g in live
    ]
    slots = _release_large_task(slots, prompt, budget, asked, route)
    slots = _with_notes(slots, prompt, first_seen, uses, live)
    alternate = must_alternate(route, original, prompt.groups)
    slots = keep(
        slots,
        route.keep_prefix * budget,
        target=min(LOWEST_TARGET, route.targets.emergency) * budget if target is None else target,
        limit=(route.targets.emergency - route.recall_budget) * budget,  # with the largest note within any target
        overhead=prompt.overhead,
        marked=marked(prompt),
        alternate=alternate,
    )
    return Window(
        slots=tuple(slots),
        budget=budget,
        used=prompt.used,
        overhead=prompt.overhead,
        alternate=alternate,
        user_first=_user_first(route, prompt.groups),
    )


def _slot(
    prompt: Prompt,
    g: int,
    id_: str,
    content: Callable[[Message], int],
    seen: Mapping[int, float | None],
    *,
    use: Use | None,
    cluster: int | None,
    pinned: bool,
    protected: bool,
) -> Slot:
    group = prompt.groups[g]
    indexes, kind = group.messages, group.kind
    results: list[Message] = []
    if len(indexes) == 1 and kind is not _TOOL:  # as most are
        only = prompt.messages[indexes[0]]
        text, tokens = "" if only is None else only.text, prompt.tokens[indexes[0]]
    else:
        messages = [m for i in indexes if (m := prompt.messages[i]) is not None]
        text, tokens = "\n".join([m.text for m in messages]), sum([prompt.tokens[i] for i in indexes])
        results = [m for m in messages if m.answers is not None] if kind is _TOOL else []
    return Slot(
        id=id_,
        role=group.role,
        kind=kind,
        text=text,
        tokens=tokens,
        turn=g,
        created_at=seen[g],
        last_accessed_at=seen[use.last] if use is not None else None,
        reference_count=use.references if use is not None else 0,
        cluster=cluster,
        pinned=pinned,
        protected=protected and not pinned,
        orphan=group.orphan,
        results=len(results),
        result_tokens=sum(map(content, results)) if results else 0,
    )


def _with_notes(
    slots: list[Slot],
    prompt: Prompt,
    first_seen: Callable[[int], float | None],
    uses: Sequence[Said] | None,
    live: Sequence[int],
) -> list[Slot]:
    """The slots with those of the notes among them, where they stand."""
    if not prompt.notes:
        return slots
    turns = {index: g for g, group in enumerate(prompt.groups) for index in group.messages}
    placed = []
    for each in prompt.notes:
        slot = each.slot(turns.get(each.note.messages[0], 0), first_seen(each.note.messages[0]))
        if uses is not None and slot.kind is Kind.SUMMARY:
            later = [g for g in live if prompt.groups[g].messages[0] >= each.note.before]
            use = used(each.text, uses, later)
            slot = replace(
                slot,
                reference_count=slot.reference_count + (use.references if use else 0),
                last_accessed_at=first_seen(prompt.groups[use.last].messages[0]) if use else slot.created_at,
            )
        placed.append((each.note.before, 0, slot))
    own = [(prompt.groups[slot.turn].messages[0], 1, slot) for slot in slots]
    return [slot for _, _, slot in sorted((*placed, *own), key=lambda each: each[:2])]


def _release_large_task(
    slots: list[Slot], prompt: Prompt, budget: int, asked: frozenset[int], route: Route
) -> list[Slot]:
    """The first user message is protected instead of pinned where it alone is over a quarter of the budget."""
    users = [slot for slot in slots if slot.role == "user"]
    if len(users) < 2 or not route.pins.first_user or users[0].tokens <= budget / 4:
        return slots
    task = users[0]
    messages = [prompt.messages[i] for i in prompt.groups[task.turn].messages]
    if asked.intersection(prompt.groups[task.turn].messages):
        return slots
    if _pinned_by_route([m for m in messages if m is not None], route.pins):
        return slots
    return [replace(slot, pinned=False, protected=True) if slot is task else slot for slot in slots]


def marked(prompt: Prompt) -> frozenset[str]:
    """The ids of the live slots on which the client put a cache marker."""
    found = {i for i, message in enumerate(prompt.messages) if message is not None and message.marked}
    if not found:
        return frozenset()
    return frozenset(slot_id(group) for group in prompt.groups if not found.isdisjoint(group.messages))


def must_alternate(route: Route, messages: Sequence[Message], groups: Sequence[Group]) -> bool:
    """Whether user and assistant turns must alternate in what is sent."""
    if route.alternate_roles is Alternate.AS_INPUT:
        return alternates(messages, groups)
    return route.alternate_roles is Alternate.STRICT


def _user_first(route: Route, groups: Sequence[Group]) -> bool:
    if route.first_role_user is not None:
        return route.first_role_user
    return next((g.role == "user" for g in groups if g.role not in ("system", "developer")), False)


def shortenable(message: Message) -> bool:
    """Whether overflow may cut from this message: a user's or a tool's, of plain strings and text parts only."""
    if message.role not in ("user", "tool", "function") or not message.parts:
        return False
    return all(isinstance(part, Text) for part in message.parts)
