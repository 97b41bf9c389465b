"""The tokens of a client's own messages, taken from the request that it goes on from as far as that goes. (pure)"""

from collections.abc import Hashable
from itertools import accumulate, islice, takewhile

from proxy.tokens import Cache, Counter, media
from proxy.wire.chat import UNKNOWN
from proxy.wire.request import Chat

_INTEGER = 32  # bytes that a number takes, at the most


def tokens(chat: Chat, counter: Counter, counts: Cache) -> tuple[int, ...]:
    """The tokens of each message."""
    name = _name(counter)
    known: tuple[int, ...] = chat.carry.get(name)
    found = (*known, *counts.messages(counter, chat.messages[len(known) :]))
    chat.carry.put(name, found, _INTEGER * (len(found) - len(known)))
    return found


def uncounted(chat: Chat, counter: Counter) -> int:
    """How many bytes of messages have not been counted, in this request or one that it goes on from."""
    return sum(message.size for message in chat.messages[len(chat.carry.get(_name(counter))) :])


def guesses(chat: Chat) -> bool:
    """Whether the cost of a part of some message is a guess."""
    known: tuple[bool, ...] = chat.carry.get("guessed")
    new = [any(map(media.guessed, message.parts)) for message in chat.messages[len(known) :]]
    found = (*known, *new)
    chat.carry.put("guessed", found)
    return True in found


def canonicals(chat: Chat) -> tuple[bytes, ...]:
    """The canonical digest of each message."""
    known: tuple[bytes, ...] = chat.carry.get("canonical")
    found = (*known, *(message.canonical for message in chat.messages[len(known) :]))
    chat.carry.put("canonical", found)
    return found


def openings(chat: Chat) -> tuple[bool, ...]:
    """Of each message, whether a group begins with it."""
    known: tuple[bool, ...] = chat.carry.get("openings")
    groups = takewhile(lambda group: group.messages[0] >= len(known), reversed(chat.groups))
    first = {group.messages[0] for group in groups}
    found = (*known, *(index in first for index in range(len(known), len(chat.messages))))
    chat.carry.put("openings", found)
    return found


def unknown(chat: Chat) -> int:
    """How many messages state no role."""
    known: tuple[int, ...] = chat.carry.get("unknown")
    sums = accumulate((each.role == UNKNOWN for each in chat.messages[len(known) :]), initial=known[-1] if known else 0)
    found = (*known, *islice(sums, 1, None))
    chat.carry.put("unknown", found, _INTEGER * (len(found) - len(known)))
    return found[-1]


def _name(counter: Counter) -> Hashable:
    return ("tokens", counter.key, counter.ratios)
