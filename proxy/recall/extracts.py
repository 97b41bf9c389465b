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
    weights = {term: math.log(1 + len(sentences) / n) for term, n in holders.items()}
    centre = dict.fromkeys(weights, 0.0)
    rows: list[tuple[dict[str, float], float]] = []
    for _, each in sentences:
        own = {}
        square = 0.0
        for term, n in each.terms.counts.items():
            own[term] = value = n * weights[term]
            centre[term] += value
            square += value * value
        rows.append((own, math.sqrt(square) or 1.0))
    length = math.sqrt(sum([value * value for value in centre.values()])) or 1.0
    near = _nearness(texts, vectors)
    scores = [sum([value * centre[term] for term, value in own.items()]) / (norm * length) for own, norm in rows]
    return [
        _Scored(index, each, score * near[index] * _bonus(index, each, kept))
        for (index, each), score in zip(sentences, scores, strict=True)
    ]


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
