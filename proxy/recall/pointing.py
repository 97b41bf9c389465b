"""How plainly a prompt means something that was left out, rather than goes on with what is there. (pure)"""

from collections.abc import Sequence

from policies.relevance import Passage, covered, rarities
from policies.terms import read
from proxy.recall.sentences import spans

QUESTION = 0.4  # what a prompt gets that is nothing but questions
FEW = 5.0  # nats: a prompt whose terms say no more than that together means nothing plainly
MARKS = ("?", "？")


def strength(query: str, old: Sequence[Passage], new: Sequence[Passage], everything: Sequence[Passage]) -> float:
    """0 and less: not at all; 1 and more: beyond doubt.

    It is the share of the prompt's terms, weighted by rarity, that one of the `old` passages has, less half of what one
    of the `new` has, and more for a prompt that asks.
    """
    asked = read(query)
    weights = rarities(asked, everything)
    there, here = (max((covered(weights, each) for each in some), default=0.0) for some in (old, new))
    return (there - here / 2) / (sum(weights.values()) + FEW) + QUESTION * asking(query)


def asking(text: str) -> float:
    """Which share of a text is questions, 0..1."""
    found = [text[start:end].rstrip() for start, end in spans(text)]
    return sum(len(each) for each in found if each.endswith(MARKS)) / max(sum(map(len, found)), 1)
