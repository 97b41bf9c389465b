"""When each slot was last taken up by a later one, and how often: worked out once for each message. (pure)"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies.mentions import Words, mentions, words
from proxy.wire.grouping import Group
from proxy.wire.request import Chat

_AROUND = 350  # bytes of the objects around the words of a group and its places


@dataclass(frozen=True, slots=True)
class Said:
    """The keywords of a group, and the places of the groups before it that it takes up."""

    words: Words
    takes: "array[int]"  # a tuple of integers takes nine times the memory, and there may be millions of them

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return _AROUND + self.words.nbytes + self.takes.itemsize * len(self.takes)


@dataclass(frozen=True, slots=True)
class Use:
    """The place of the last group that took another up, and how many did."""

    last: int
    references: int


def said(chat: Chat) -> tuple[Said, ...]:
    """What each group says and takes up; of the messages that an earlier request had too, as it found it.

    A group is a message with those of its own that follow it directly: results that come later, between other
    messages, change nothing about what was said before them.
    """
    messages, groups = chat.messages, chat.groups
    known: tuple[Said | None, ...] = chat.carry.get("said")
    ends = [_end(group) for group in groups]
    found = [known[end] if end < len(known) else None for end in ends]
    start = next((place for place, each in enumerate(found) if each is None), len(found))
    own = [
        words("\n".join([messages[i].text for i in range(group.messages[0], end + 1)])) if each is None else each.words
        for group, end, each in zip(groups, ends, found, strict=True)
    ]
    taken = (array("i", each) for each in mentions(own, start))
    made = [Said(*each) for each in zip(own[start:], taken, strict=True)]
    values: list[Said | None] = [*known, *([None] * (len(messages) - len(known)))]
    for end, each in zip(ends[start:], made, strict=True):
        values[end] = each
    chat.carry.put("said", values, sum(each.size for each in made))
    return (*(each for each in found[:start] if each is not None), *made)


def uses(everything: Sequence[Said], live: Iterable[int]) -> Mapping[int, Use]:
    """The use of each of the live groups, by their places, that a live one after it takes up."""
    places = sorted(live)
    here = frozenset(places)
    found: dict[int, Use] = {}
    for place in places:
        for taken in everything[place].takes:
            if taken in here:
                found[taken] = Use(place, found[taken].references + 1 if taken in found else 1)
    return found


def used(text: str, everything: Sequence[Said], later: Sequence[int]) -> Use | None:
    """The use of a text that is no message by the groups at the places `later`; None where none takes it up."""
    taking = mentions([*(everything[place].words for place in later), words(text)], len(later))[0]
    return Use(later[taking[-1]], len(taking)) if taking else None


def _end(group: Group) -> int:
    """The last message of the group that follows its first without others between them."""
    first = group.messages[0]
    if group.messages[-1] - first == len(group.messages) - 1:
        return group.messages[-1]
    return next(i for n, i in enumerate(group.messages) if group.messages[n + 1] != i + 1)
