"""What slots name that later ones name again: order numbers, paths, dates, all that has digits or joints in it."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from policies.keywords import plain
from policies.types import Slot

DECAY = 0.02  # per slot that came after, of what a slot and what a use of it are worth: that of `priority`
LIMIT = 4_096  # characters of a slot that are read: half from its beginning, half from its end
SHORTEST, LONGEST = 4, 200  # characters: a shorter one is anybody's, a longer one nobody writes again

_JOINTS = "._/:@#\\-"
_NAMING = re.compile(r"[0-9./_@#\\]")
_RUNS = plain(_JOINTS)


def identifiers(text: str) -> frozenset[str]:
    """The identifiers of a text in lower case, without the joints around them."""
    return _identifiers(text if len(text) <= LIMIT else f"{text[: LIMIT // 2]}\n{text[-LIMIT // 2 :]}")


@lru_cache(maxsize=2048)
def _identifiers(text: str) -> frozenset[str]:
    runs = set(text.encode("ascii", "replace").translate(_RUNS).decode("ascii").split())
    found = [run.strip(_JOINTS) for run in runs if not run.isalpha()]  # which most are, and that is quickly seen
    return frozenset([each for each in found if SHORTEST <= len(each) <= LONGEST and _NAMING.search(each)])


def standing(slots: Sequence[Slot], wanted: Collection[str]) -> Mapping[str, float]:
    """How likely each of the slots with the `wanted` ids is to be needed again, 0 and more: what is new, or spoken of.

    e^(-DECAY·age), and for each identifier that a later slot names too e^(-DECAY·age of the last that does) ÷ the
    number of slots that have it. Ages are in slots of the window.
    """
    named = [identifiers(slot.text) for slot in slots]
    holders: Counter[str] = Counter()
    last: dict[str, int] = {}
    for place, names in enumerate(named):
        holders.update(names)
        last.update(dict.fromkeys(names, place))
    fresh = [math.exp(-DECAY * age) for age in range(len(slots), 0, -1)]
    return {
        slot.id: fresh[place] + math.fsum(fresh[last[each]] / holders[each] for each in names if last[each] > place)
        for place, (slot, names) in enumerate(zip(slots, named, strict=True))
        if slot.id in wanted
    }
