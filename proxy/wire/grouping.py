"""Which messages belong together: a call and its results leave a prompt, or stay in it, as one.

A result belongs to the nearest assistant message before it that made a call with its id. Ids alone will not do:
some providers begin again at `call_0` in every turn. The legacy `function_call` pairs with role `function` by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from policies.types import Kind
from proxy.wire.chat import Message

INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles that stand alone and never leave."""

_RESULTS = frozenset({"tool", "function"})
_Key = tuple[str, str]  # the role of the answer, and the id or the function's name that it carries


@dataclass(frozen=True, slots=True)
class Group:
    """The messages of one slot, by index and in order.

    A tool group has role `tool`, and is an `orphan` if it is a result whose call the client did not send.
    """

    messages: tuple[int, ...]
    kind: Kind
    role: str
    orphan: bool = False


class _Exchange:
    """An assistant message with calls, and the results found for it so far."""

    def __init__(self, index: int, message: Message) -> None:
        self.members = [index]
        self.unanswered = len(message.calls)
        calls = message.calls
        self.keys: list[_Key] = []
        if message.legacy_call:  # it stands last and has no id
            self.keys += [("function", call.name) for call in calls[-1:]]
            calls = calls[:-1]
        self.keys += [("tool", call.id) for call in calls]


def group(messages: Sequence[Message]) -> tuple[Group, ...]:
    """The messages as groups, each message in exactly one, ordered by their first message."""
    owners: dict[_Key, _Exchange] = {}
    exchanges: dict[int, _Exchange] = {}
    nearest: _Exchange | None = None
    groups: dict[int, Group] = {}
    for index, message in enumerate(messages):
        if message.role in _RESULTS:
            owner = owners.get((message.role, message.answers or "")) or (nearest if not message.answers else None)
            if owner is None:
                groups[index] = Group((index,), Kind.TOOL, "tool", orphan=True)
                continue
            owner.members.append(index)
            owner.unanswered -= 1
            if owner is nearest and owner.unanswered <= 0:
                nearest = None
        elif message.role == "assistant" and message.calls:
            nearest = exchanges[index] = _Exchange(index, message)
            owners |= dict.fromkeys(nearest.keys, nearest)
        else:
            groups[index] = Group((index,), Kind.DIALOGUE, message.role)
            if message.role not in INSTRUCTIONS:
                nearest = None
    groups |= {i: Group(tuple(exchange.members), Kind.TOOL, "tool") for i, exchange in exchanges.items()}
    return tuple(groups[index] for index in sorted(groups))


def alternates(messages: Sequence[Message]) -> bool:
    """Whether user and assistant turns alternate; tool groups, system and developer messages do not count as turns.

    That is how strict chat templates count, Mistral's among them. A role that they do not know does not alternate.
    """
    turns = _turns(messages)
    if not set(turns) <= {"user", "assistant"}:
        return False
    return all(earlier != later for earlier, later in pairwise(turns))


def begins_with_user(messages: Sequence[Message]) -> bool:
    """Whether the first message that is neither system nor developer is a user's."""
    return next((message.role == "user" for message in messages if message.role not in INSTRUCTIONS), False)


def _turns(messages: Sequence[Message]) -> list[str]:
    return [each.role for each in group(messages) if each.kind is not Kind.TOOL and each.role not in INSTRUCTIONS]
