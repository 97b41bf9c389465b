"""Which messages belong together: a call and its results leave a prompt, or stay in it, as one.

A result belongs to the nearest assistant message before it that made a call with its id. Ids alone will not do:
some providers begin again at `call_0` in every turn. The legacy `function_call` pairs with role `function` by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from policies.types import Kind
from proxy.wire.chat import Message

INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles that stand alone and never leave."""

_SPEAKERS = frozenset({"user", "assistant", *INSTRUCTIONS})
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

    def __init__(self, message: Message, members: Iterable[int]) -> None:
        self.members = list(members)
        self.unanswered = len(message.calls) - len(self.members) + 1
        calls = message.calls
        self.keys: list[_Key] = []
        if message.legacy_call:  # it stands last and has no id
            self.keys += [("function", call.name) for call in calls[-1:]]
            calls = calls[:-1]
        self.keys += [("tool", call.id) for call in calls]


class _Exchanges:
    """The exchanges of a prompt by their first message; those of groups made before are looked at when asked for."""

    def __init__(self, messages: Sequence[Message], before: Sequence[Group]) -> None:
        self._messages = messages
        self._unread = (group for group in reversed(before) if group.kind is Kind.TOOL and not group.orphan)
        self._owners: dict[_Key, _Exchange] = {}
        self.found: dict[int, _Exchange] = {}

    def add(self, index: int) -> _Exchange:
        """The exchange that a message begins, which is now the one that its keys mean."""
        made = self.found[index] = _Exchange(self._messages[index], (index,))
        self._owners |= dict.fromkeys(made.keys, made)
        return made

    def owner(self, key: _Key) -> _Exchange | None:
        """The newest exchange with a key."""
        while key not in self._owners:
            if self.newest() is None:
                return None
        return self._owners[key]

    def newest(self) -> _Exchange | None:
        """The newest exchange of the groups made before that was not looked at yet."""
        if (group := next(self._unread, None)) is None:
            return None
        made = self.found[group.messages[0]] = _Exchange(self._messages[group.messages[0]], group.messages)
        for key in made.keys:
            self._owners.setdefault(key, made)
        return made


def group(messages: Sequence[Message], before: Sequence[Group] = (), start: int = 0) -> tuple[Group, ...]:
    """The messages as groups, each message in exactly one, ordered by their first message.

    `before` are the groups of the first `start` messages, where they are known.
    """
    exchanges = _Exchanges(messages, before)
    nameless = any(message.role in _RESULTS and not message.answers for message in messages[start:])
    nearest = _open(exchanges, messages, start) if nameless else None
    groups: dict[int, Group] = {}
    for index in range(start, len(messages)):
        message = messages[index]
        if message.role in _RESULTS:
            owner = exchanges.owner((message.role, message.answers or "")) or (nearest if not message.answers else None)
            if owner is None:
                groups[index] = Group((index,), Kind.TOOL, "tool", orphan=True)
                continue
            owner.members.append(index)
            owner.unanswered -= 1
            if owner is nearest and owner.unanswered <= 0:
                nearest = None
        elif message.role == "assistant" and message.calls:
            nearest = exchanges.add(index)
        else:
            groups[index] = _alone(index, message.role)
            if message.role not in INSTRUCTIONS:
                nearest = None
    groups |= {i: Group(tuple(exchange.members), Kind.TOOL, "tool") for i, exchange in exchanges.found.items()}
    old = [groups.pop(each.messages[0], each) for each in before] if exchanges.found else before
    return (*old, *(groups[index] for index in sorted(groups)))


def first_of(groups: tuple[Group, ...], count: int, length: int) -> tuple[Group, ...]:
    """The groups of the first `count` of the `length` messages whose groups these are."""
    if count == length:
        return groups
    return tuple(
        each if each.messages[-1] < count else replace(each, messages=tuple(i for i in each.messages if i < count))
        for each in groups
        if each.messages[0] < count
    )


def _open(exchanges: _Exchanges, messages: Sequence[Message], start: int) -> _Exchange | None:
    """The exchange that results without an id belong to, after the first `start` messages."""
    for index in range(start - 1, -1, -1):
        message = messages[index]
        if message.role == "assistant" and message.calls:
            newest = exchanges.newest()
            return newest if newest is not None and newest.unanswered > 0 else None
        if message.role not in _RESULTS and message.role not in INSTRUCTIONS:
            return None
    return None


def _alone(index: int, role: str) -> Group:
    return _known(index, role) if role in _SPEAKERS else Group((index,), Kind.DIALOGUE, role)


@lru_cache(maxsize=1 << 14)
def _known(index: int, role: str) -> Group:
    return Group((index,), Kind.DIALOGUE, role)


def alternates(messages: Sequence[Message], groups: Sequence[Group] | None = None) -> bool:
    """Whether user and assistant turns alternate; tool groups, system and developer messages do not count as turns.

    That is how strict chat templates count, Mistral's among them. A role that they do not know does not alternate.
    `groups` are those of the messages, where they are known.
    """
    turns = _turns(group(messages) if groups is None else groups)
    if not set(turns) <= {"user", "assistant"}:
        return False
    return all(earlier != later for earlier, later in pairwise(turns))


def begins_with_user(messages: Sequence[Message]) -> bool:
    """Whether the first message that is neither system nor developer is a user's."""
    return next((message.role == "user" for message in messages if message.role not in INSTRUCTIONS), False)


def _turns(groups: Sequence[Group]) -> list[str]:
    tool = Kind.TOOL
    return [each.role for each in groups if each.kind is not tool and each.role not in INSTRUCTIONS]
