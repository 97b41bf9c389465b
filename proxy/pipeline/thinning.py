"""What a provider takes beside tokens, so many messages or bytes, as further budgets over the same slots. (pure)"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from policies.greedy import evict_lowest
from policies.plan import Evict, Plan
from policies.types import Window
from proxy import wire
from proxy.conversations.ledger import Ledger
from proxy.conversations.placed import Placed
from proxy.errors import ClientError
from proxy.pipeline.decision import Decision, Fate
from proxy.pipeline.prompt import Prompt, slot_id
from proxy.pipeline.record import Written, record
from proxy.route import OnOverflow, Route
from proxy.wire.chat import Message

LEAST_BYTES = 13  # of a message with nothing but a role, and its comma
NOTE_BYTES = 32  # of a note's role, its brackets and its comma
COMMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most that a route sends of something: its `name`, what a message and a note have of it, and the rest.

    `setting` names it in a configuration; `status` and `code` are those of the error where a route rejects.
    """

    name: str
    most: int
    setting: str
    status: int
    code: str
    message: Callable[[Message], int]
    note: Callable[[Placed], int]
    fixed: int = 0

    def used(self, prompt: Prompt) -> int:
        """How much of it a prompt has, its notes included."""
        own = sum(self.message(message) for message in prompt.messages if message is not None)
        return own + sum(self.note(placed) for placed in prompt.notes) + self.fixed

    def exceeded(self, prompt: Prompt) -> bool:
        """Whether a prompt has more of it than the route sends."""
        return self.used(prompt) > self.most


def limits(route: Route, chat: wire.Chat) -> tuple[Limit, ...]:
    """The limits of a route, for the requests that `chat` is one of."""
    found = []
    if route.max_messages is not None:
        most = route.max_messages
        found.append(
            Limit(
                name="messages",
                most=most,
                setting="max_messages",
                status=400,
                code="too_many_messages",
                message=lambda _: 1,
                note=lambda placed: int(not placed.note.merge),
            )
        )
    if route.max_bytes is not None:
        rest = len(chat.body) - sum(message.size + COMMA for message in chat.messages)
        found.append(
            Limit(
                name="bytes",
                most=route.max_bytes,
                setting="max_bytes",
                status=413,
                code="request_too_large",
                message=lambda message: message.size + COMMA,
                note=lambda placed: len(json.dumps(placed.text)) + NOTE_BYTES,
                fixed=max(0, rest),
            )
        )
    return tuple(found)


def may_exceed(size: int, route: Route) -> bool:
    """Whether a body of `size` bytes can have more messages or bytes than its route sends."""
    crowded = route.max_messages is not None and size > LEAST_BYTES * route.max_messages
    return crowded or (route.max_bytes is not None and size > route.max_bytes)


def thinned(
    decision: Decision,
    limit: Limit,
    route: Route,
    *,
    recount: Callable[[Ledger], Prompt],
    seen: Callable[[Prompt], Window],
) -> Decision:
    """The decision with as many slots gone, besides, as a limit asks for.

    Down to the share of it that a normal cut goes down to in tokens, so that the next message asks for no other.
    `recount` gives the prompt of a ledger, `seen` its window.

    Raises:
        ClientError: what may go is gone, it is still too much, and the route says reject.
    """
    prompt = recount(decision.ledger)
    if not limit.exceeded(prompt):
        return decision
    force = route.on_overflow in (OnOverflow.TRUNCATE, OnOverflow.FORCE)
    gone = thin(prompt, seen(prompt), limit, max(1, int(route.targets.evict * limit.most)), force=force)
    ledger = record(Written(Plan(decision.policy, gone)), prompt, decision.ledger)
    left = limit.used(recount(ledger))
    if left > limit.most and route.on_overflow is OnOverflow.REJECT:
        raise ClientError(
            limit.status,
            limit.code,
            f"This request has {left} {limit.name} after everything that may be dropped is gone, and its route sends "
            f"at most {limit.most}. Send fewer instructions and pinned messages, or raise the route's {limit.setting}.",
            "messages",
        )
    fates = {action.slot: Fate("evict", action.score, action.reason) for action in gone}
    unfit = decision.unfit or left > limit.most
    return replace(decision, ledger=ledger, fates={**decision.fates, **fates}, unfit=unfit)


def thin(prompt: Prompt, window: Window, limit: Limit, target: int, *, force: bool) -> tuple[Evict, ...]:
    """Evict until a prompt that has too much has at most `target`: oldest slots first, whole slots only.

    Where that is not enough, `force` evicts protected slots too, oldest first, until the limit is met.
    """
    sizes = dict(_sizes(prompt, limit))
    slots = tuple(replace(slot, tokens=sizes[slot.id]) for slot in window.slots)
    used = sum(slot.tokens for slot in slots) + limit.fixed
    if used <= limit.most:
        return ()
    reason = f"the route sends at most {limit.most} {limit.name}"
    counted = replace(window, slots=slots, used=used, overhead=limit.fixed)
    gone = evict_lowest(counted, target, lambda slot: slot.turn, reason)
    names = {action.slot for action in gone}
    left = tuple(replace(slot, protected=False) for slot in slots if slot.id not in names)
    used = sum(slot.tokens for slot in left) + limit.fixed
    if used <= limit.most or not force:
        return gone
    opened = replace(counted, slots=left, used=used)
    return gone + evict_lowest(opened, limit.most, lambda slot: slot.turn, f"protected, but {reason}")


def _sizes(prompt: Prompt, limit: Limit) -> Iterator[tuple[str, int]]:
    """What each slot has of it."""
    live: Mapping[int, int] = {
        index: limit.message(message) for index, message in enumerate(prompt.messages) if message is not None
    }
    for group in prompt.groups:
        yield slot_id(group), sum(live.get(index, 0) for index in group.messages)
    for placed in prompt.notes:
        yield placed.note.id, limit.note(placed)
