"""How plainly a prompt means something that was left out, rather than goes on with what is there. (pure)"""

import re
from collections.abc import Sequence

from policies.relevance import Passage, covered, rarities
from policies.terms import Terms, read
from proxy.recall.sentences import spans

QUESTION = 0.4  # what a prompt gets that is nothing but questions
BACK = 0.2  # what a prompt gets that speaks of what was before
GAP = 0.2  # what a prompt gets that only what was left out is relevant to
FEW = 5.0  # nats: a prompt whose terms say no more than that together means nothing plainly
REPEATED = 0.7  # the share of a passage's terms in the prompt from which it only repeats what the prompt says
REACH = 400  # characters at either end of a prompt, where what it asks is said; between them pastes stand
MARKS = ("?", "？")

_NUMBER = re.compile(r"[0-9]")
_BEFORE = re.compile(
    r"\b(?:earlier|previous(?:ly)?|remember|recall|remind|(?:before|again)(?=\W*(?:[.?!,]|$))"
    r"|(?:go|going|come|coming|get|turn) back|ago"
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
    of the `new` has, where a passage that repeats the prompt says nothing; more for a prompt that asks, that speaks of
    what was before, and to which the most relevant of what was left out is more relevant than all that was not, by
    `gap`, -1..1.
    """
    asked = read(query)
    weights = rarities(asked, everything)
    telling = [each for each in old if not repeats(each, asked)]
    there, here = (max((covered(weights, each) for each in some), default=0.0) for some in (telling, new))
    named = (there - here / 2) / (sum(weights.values()) + FEW)
    return named + QUESTION * asking(query) + BACK * looks_back(query) + GAP * gap


def repeats(passage: Passage, asked: Terms) -> bool:
    """Whether a passage has hardly a term that the prompt has not, and no number: the same remark or question again."""
    counts = passage.terms.counts
    new = [term for term in counts if term not in asked.counts]
    return len(new) < (1 - REPEATED) * len(counts) and not any(_NUMBER.search(term) for term in new)


def asking(text: str) -> float:
    """Which share of a text is questions, 0..1."""
    found = [text[start:end].rstrip() for start, end in spans(text)]
    return sum(len(each) for each in found if each.endswith(MARKS)) / max(sum(map(len, found)), 1)


def looks_back(text: str) -> bool:
    """Whether a prompt has words that speak of what was before, in English, Chinese or Japanese."""
    return bool(_BEFORE.search(text[:REACH]) or _BEFORE.search(text[REACH:][-REACH:]))
