"""How plainly a prompt means something that was left out, rather than goes on with what is there. (pure)"""

import re
from collections.abc import Sequence

from policies.relevance import Passage, covered, rarities
from policies.terms import read
from proxy.recall.sentences import spans

QUESTION = 0.4  # what a prompt gets that is nothing but questions
BACK = 0.2  # what a prompt gets that speaks of what was before
GAP = 0.2  # what a prompt gets that only what was left out is relevant to
FEW = 5.0  # nats: a prompt whose terms say no more than that together means nothing plainly
REACH = 400  # characters at either end of a prompt, where what it asks is said; between them pastes stand
MARKS = ("?", "？")

_BEFORE = re.compile(
    r"\b(?:earlier|previous(?:ly)?|before|remember|recall|remind|again|(?:go|going|come|coming|get|turn) back|ago|once"
    r"|last (?:time|week|month|year)|did (?:i|we|you)|when (?:i|we) w(?:as|ere)"
    r"|(?:you|we|i) (?:already |also |just |once )?(?:agreed|asked|chose|decided|discussed|gave|helped|mentioned|picked"
    r"|recommended|said|shared|showed|spoke|suggested|talked|told|used))\b"
    r"|之前|以前|先前|上次|刚才|刚刚|記得|记得|说过|說過|提到|提过|聊过|曾经|那天|后来|さっき|先ほど|以前|前回|覚えて",
    re.IGNORECASE,
)


def strength(
    query: str, old: Sequence[Passage], new: Sequence[Passage], everything: Sequence[Passage], gap: float = 0.0
) -> float:
    """0 and less: not at all; 1 and more: beyond doubt.

    It is the share of the prompt's terms, weighted by rarity, that one of the `old` passages has, less half of what one
    of the `new` has; more for a prompt that asks, that speaks of what was before, and to which the most relevant of
    what was left out is more relevant than all that was not, by `gap`, -1..1.
    """
    asked = read(query)
    weights = rarities(asked, everything)
    there, here = (max((covered(weights, each) for each in some), default=0.0) for some in (old, new))
    named = (there - here / 2) / (sum(weights.values()) + FEW)
    return named + QUESTION * asking(query) + BACK * looks_back(query) + GAP * gap


def asking(text: str) -> float:
    """Which share of a text is questions, 0..1."""
    found = [text[start:end].rstrip() for start, end in spans(text)]
    return sum(len(each) for each in found if each.endswith(MARKS)) / max(sum(map(len, found)), 1)


def looks_back(text: str) -> bool:
    """Whether a prompt has words that speak of what was before, in English, Chinese or Japanese."""
    return bool(_BEFORE.search(text[:REACH]) or _BEFORE.search(text[REACH:][-REACH:]))
