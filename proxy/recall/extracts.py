"""A summary made of the messages' own sentences: those that say most of what the messages have in common. (pure)

Each sentence is a vector of its terms weighted by TF-IDF within the messages, and scores by its cosine with the sum
of all (centroid summarisation: Radev et al. 2004), times how near its message is to the middle of them where vectors
are known. A sentence that repeats what was taken already is passed over.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from policies.relevance import Vectors, pooled
from policies.terms import Terms
from proxy.conversations.notes import Note, Quote
from proxy.recall import JOINT, introduced, joined
from proxy.recall.library import Library, Sentence
from proxy.wire.chat import Message

SHORT = 4  # terms: a sentence with fewer is a confirmation more often than a fact
REPEATED = 0.7  # the share of its terms in what was taken that makes a sentence a repetition
FLOOR = 0.25  # of the best score: less is left out, whatever the room
BEFORE = 1.5  # an earlier summary's sentences have been found worth keeping once
PASSED_OVER = 8  # sentences, the best first, that find no room before the search for shorter ones ends


@dataclass(frozen=True, slots=True)
class _Scored:
    index: int
    sentence: Sentence
    score: float


def extract(
    note: Note,
    messages: Sequence[Message],
    room: int,
    *,
    library: Library,
    count: Callable[[str], int],
    cost: Callable[[Note], int],
    vectors: Mapping[int, Vectors] | None = None,
    before: Sequence[Note] = (),
) -> Note | None:
    """The summary with quotes of what it covers, so that it costs at most `room` tokens; None where none fits.

    `count` gives the tokens of a text, `cost` those that a note adds to the prompt. `vectors` are those that are
    known, by message; `before` are the summaries that this one takes in.
    """
    texts = {index: messages[index] for index in note.covers if messages[index].text.strip()}
    if not texts:
        return None
    kept = [quote for earlier in before for quote in earlier.quotes]
    ranked = sorted(_scored(texts, library, vectors or {}, kept), key=lambda each: -each.score)
    if not ranked:
        return None
    first = ranked[0]
    one = Quote(first.index, first.sentence.start, first.sentence.start + 1)
    left = room - cost(replace(note, quotes=(one,))) + introduced(messages, (one,), count)
    taken: list[_Scored] = []
    said: Counter[str] = Counter()
    heard: set[int] = set()
    passed = 0
    for each in ranked:
        terms = each.sentence.terms
        if each.score < FLOOR * first.score or passed >= PASSED_OVER:
            break
        if _repeats(terms, said):
            continue
        text = messages[each.index].text[each.sentence.start : each.sentence.end]
        tokens = count(text)
        if each.index in heard:
            tokens += JOINT
        else:
            tokens += introduced(messages, (Quote(each.index, each.sentence.start, each.sentence.end),), count)
        if tokens > left:
            passed += 1
            continue
        taken.append(each)
        said.update(terms.counts)
        heard.add(each.index)
        left -= tokens
    while taken:
        made = replace(note, quotes=tuple(_quotes(taken, texts, library)))
        if cost(made) <= room:
            return made
        taken.pop()
    return None


def _quotes(taken: Sequence[_Scored], texts: Mapping[int, Message], library: Library) -> list[Quote]:
    found: list[Quote] = []
    for index in sorted({each.index for each in taken}):
        chosen = [each.sentence for each in taken if each.index == index]
        found += joined(chosen, library.sentences(texts[index]), index)
    return found


def _scored(
    texts: Mapping[int, Message], library: Library, vectors: Mapping[int, Vectors], kept: Sequence[Quote]
) -> list[_Scored]:
    sentences = [(index, each) for index, message in texts.items() for each in library.sentences(message)]
    holders = Counter(chain.from_iterable([each.terms.counts for _, each in sentences]))
    times = dict(holders)
    for _, each in sentences:
        for term, n in _again(each.terms):
            times[term] += n - 1
    weights = {term: math.log(1 + len(sentences) / n) for term, n in holders.items()}
    squares = {term: weight * weight for term, weight in weights.items()}
    # What a term adds to the product of a sentence with the sum of all: its weights in both.
    shared = {term: n * squares[term] for term, n in times.items()}
    length = math.sqrt(sum([n * shared[term] for term, n in times.items()])) or 1.0
    near = _nearness(texts, vectors)
    return [
        _Scored(index, each, _cosine(each.terms, squares, shared, length) * near[index] * _bonus(index, each, kept))
        for index, each in sentences
    ]


def _again(terms: Terms) -> Sequence[tuple[str, int]]:
    """The terms that occur more than once."""
    if terms.length == len(terms.counts):
        return ()
    return [(term, n) for term, n in terms.counts.items() if n > 1]


def _cosine(terms: Terms, squares: Mapping[str, float], shared: Mapping[str, float], length: float) -> float:
    product, square = (sum(map(each.__getitem__, terms.counts)) for each in (shared, squares))
    for term, n in _again(terms):
        product += (n - 1) * shared[term]
        square += (n * n - 1) * squares[term]
    return product / ((math.sqrt(square) or 1.0) * length)


def _bonus(index: int, sentence: Sentence, kept: Sequence[Quote]) -> float:
    before = bool(kept) and any(
        q.message == index and q.start <= sentence.start and sentence.end <= q.end for q in kept
    )
    return (BEFORE if before else 1.0) * min(1.0, sentence.terms.length / SHORT)


def _nearness(texts: Mapping[int, Message], vectors: Mapping[int, Vectors]) -> Mapping[int, float]:
    """How near each message is to the middle of all, 0..1; 1 where its vector is not known."""
    known = [index for index in texts if index in vectors]
    if len(known) < 2:
        return dict.fromkeys(texts, 1.0)
    own = [np.atleast_2d(vectors[index]) for index in known]
    if all(len(rows) == 1 for rows in own):  # of one piece, as most are: they are unit vectors already
        units = np.concatenate(own).astype(np.float32)
    else:
        units = np.stack([pooled(rows) for rows in own])
    near = dict(zip(known, np.maximum(units @ pooled(units), 0.1).tolist(), strict=True))
    return {index: near.get(index, 1.0) for index in texts}


def _repeats(terms: Terms, said: Mapping[str, int]) -> bool:
    return len(terms.counts.keys() & said.keys()) > REPEATED * len(terms.counts)
