"""How relevant each text of a conversation is to a prompt: words, vectors, neighbours, speakers and dates in one score.

Three steps, and every number in them is in units of one standard deviation over the conversation:

1. Each text is scored by Okapi BM25 (Robertson & Zaragoza 2009; idf as in Lucene, never negative) over the
   conversation itself, and by its cosine with the prompt; a long text counts by the best of its pieces. Both are
   standardised and summed with weights. A text without a vector counts by its words alone.
2. Each text takes a share of what its neighbours score: an answer shares few words with its question, and what a
   conversation says about a thing stands together. The share halves with each step of distance. It is taken of
   exponentials, so that one strong neighbour counts and many weak ones do not drag a strong text down.
3. Texts of a speaker whom the prompt names, and texts said on a date that it names or in the days after, come first.
   The speaker's name is no word to look for besides: it stands where others address them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from policies.dates import Date, nearness
from policies.terms import Terms, read

Scores = NDArray[np.float64]
Vectors = NDArray[np.floating]
"""Unit vectors, one a row (the pieces of a text), or a single one."""

K1 = 0.8  # how soon repetition stops counting: sooner than the usual 1.2, for messages are short
B = 0.6  # how much length counts against a text: less than the usual 0.75, for messages are long where they say more
DENSE = 0.65  # the weight of vectors against words
NEIGHBOUR = 0.5  # the share that a neighbour gets, halved with each further step
BACKWARD = 0.8  # what follows is worth a little more than what goes before
REACH = 5  # steps to each side
SHARPNESS = 0.7  # of the exponential: towards 0 shares become plain sums, upwards the strongest neighbour alone counts
SPEAKER = 2.0
DATE = 2.0
QUERY_TERMS = 64  # of a longer prompt the rarest terms are taken


@dataclass(frozen=True, slots=True)
class Passage:
    """One text of a conversation as terms, and who said it (the `name` of its message; empty where it has none)."""

    terms: Terms
    speaker: str = ""

    @classmethod
    def of(cls, text: str, speaker: str = "") -> "Passage":
        """Read `text`. This is the costly part: keep the passage for as long as the text may come again."""
        return cls(read(text, speaker), speaker)


@dataclass(frozen=True, slots=True)
class Index:
    """The passages of a conversation in its order, ready to be ranked."""

    passages: tuple[Passage, ...]
    lengths: Scores = field(init=False, repr=False, compare=False)
    days: tuple[Date | None, ...] = field(init=False, repr=False, compare=False)
    speakers: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths = np.array([passage.terms.length for passage in self.passages], dtype=np.float64)
        names = dict.fromkeys(passage.speaker for passage in self.passages if passage.speaker)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "days", tuple(_days(self.passages)))
        object.__setattr__(self, "speakers", {name: frozenset(read(name).counts) for name in names})

    @classmethod
    def of(cls, texts: Iterable[str], speakers: Iterable[str] | None = None) -> "Index":
        """An index over texts and, one for each where they are given, the names of their speakers."""
        return cls(()).extended(texts, speakers)

    def extended(self, texts: Iterable[str], speakers: Iterable[str] | None = None) -> "Index":
        """This index with more texts after its own, which are not read again."""
        if speakers is None:
            return Index((*self.passages, *(Passage.of(text) for text in texts)))
        named = zip(texts, speakers, strict=True)
        return Index((*self.passages, *(Passage.of(text, speaker) for text, speaker in named)))

    def __len__(self) -> int:
        return len(self.passages)


def relevance(
    query: str,
    index: Index,
    vectors: Sequence[Vectors | None] | None = None,
    query_vector: Vectors | None = None,
) -> Scores:
    """The relevance of each passage to `query`, 0..1: 1 is the most relevant of the conversation, 0 the least.

    `vectors` runs parallel to the passages, None for one that has none. All are 0 where nothing tells them apart. The
    prompt itself must not be among the passages: it would outshine them all.
    Raises ValueError for vectors that are not one for each passage.
    """
    if vectors is not None and len(vectors) != len(index):
        raise ValueError(f"vectors: must be one for each of {len(index)} passages, got {len(vectors)}")
    if not len(index):
        return np.zeros(0)
    asked = read(query)
    named = _named(asked, index)
    score = _standard(bm25(_without(asked, [index.speakers[name] for name in named]), index))
    if vectors is not None and query_vector is not None:
        there = [vector for vector in vectors if vector is not None]
        known = np.array([vector is not None for vector in vectors]) if len(there) < len(index) else np.s_[:]
        if there:
            close = _standard(_cosines(there, query_vector))
            score[known] = (1 - DENSE) * score[known] + DENSE * close
    score = _standard(_spread(score))
    score += SPEAKER * _spoken(named, index) + DATE * _dated(asked, index)
    span = score.max() - score.min()
    return (score - score.min()) / span if span > 0 else np.zeros(len(index))


def bm25(asked: Terms, index: Index) -> Scores:
    """The BM25 score of each passage for the terms that are asked for, 0 or more."""
    held: dict[str, list[tuple[int, int]]] = {term: [] for term in asked.counts}
    terms = held.keys()
    for i, passage in enumerate(index.passages):
        counts = passage.terms.counts
        for term in terms & counts.keys():
            held[term].append((i, counts[term]))
    found = [
        (math.log(1 + (len(index) - len(holders) + 0.5) / (len(holders) + 0.5)), holders)
        for holders in held.values()
        if holders
    ]
    found.sort(key=lambda each: -each[0])
    scores = np.zeros(len(index))
    norm = K1 * (1 - B + B * index.lengths / max(index.lengths.mean(), 1.0))
    for idf, holders in found[:QUERY_TERMS]:
        places, times = np.array(holders).T
        scores[places] += idf * times * (K1 + 1) / (times + norm[places])
    return scores


def rarities(asked: Terms, everything: Sequence[Passage]) -> dict[str, float]:
    """How much each term that is asked says: its idf among all passages, in nats."""
    held = dict.fromkeys(asked.counts, 0)
    terms = held.keys()
    for passage in everything:
        for term in terms & passage.terms.counts.keys():
            held[term] += 1
    return {term: math.log(1 + (len(everything) - n + 0.5) / (n + 0.5)) for term, n in held.items()}


def covered(weights: Mapping[str, float], passage: Passage) -> float:
    """The sum of the weights of those terms that a passage has."""
    return sum(weight for term, weight in weights.items() if term in passage.terms.counts)


def pooled(vectors: Vectors) -> NDArray[np.float32]:
    """One unit vector for a text, from those of its pieces."""
    mean = np.atleast_2d(vectors).astype(np.float32).mean(axis=0)
    length = float(np.linalg.norm(mean))
    return np.asarray(mean / length if length > 0 else mean, dtype=np.float32)


def _cosines(vectors: Sequence[Vectors], query: Vectors) -> Scores:
    """The cosine of the query with the best piece of each text."""
    pieces = [vector if vector.ndim == 2 else vector[None, :] for vector in vectors]
    close = np.concatenate(pieces, dtype=np.float32) @ pooled(query)
    if len(close) == len(pieces):
        return close.astype(np.float64)
    starts = np.cumsum([0, *map(len, pieces[:-1])])
    return np.maximum.reduceat(close, starts).astype(np.float64)


def _standard(values: Scores) -> Scores:
    """The values with mean 0 and standard deviation 1; zeros where they do not differ."""
    deviation = float(values.std())
    return (values - values.mean()) / deviation if deviation > 1e-9 else np.zeros(len(values))


def _spread(values: Scores) -> Scores:
    """Each value with its share of its neighbours', by a soft maximum; at either end there are fewer to take it of."""
    own = np.exp(SHARPNESS * (values - values.max()))
    spread, shares = own.copy(), np.ones(len(own))
    for step in range(1, min(REACH, len(values) - 1) + 1):
        after = NEIGHBOUR**step
        before = BACKWARD * after
        spread[step:] += after * own[:-step]
        shares[step:] += after
        spread[:-step] += before * own[step:]
        shares[:-step] += before
    spread /= shares
    result: Scores = np.log(np.maximum(spread, np.finfo(np.float64).tiny))
    return result


def _named(asked: Terms, index: Index) -> frozenset[str]:
    """The speakers whom the prompt names."""
    return frozenset(name for name, terms in index.speakers.items() if terms and terms <= asked.counts.keys())


def _without(asked: Terms, names: Iterable[frozenset[str]]) -> Terms:
    """What is asked for beside names: a speaker's stands where others address them, not in what they say."""
    gone = frozenset().union(*names)
    return replace(asked, counts={term: n for term, n in asked.counts.items() if term not in gone}) if gone else asked


def _spoken(named: frozenset[str], index: Index) -> Scores:
    """1 for the passages of speakers whom the prompt names, unless it names all there are."""
    if not named or len(named) == len(index.speakers):
        return np.zeros(len(index))
    return np.array([passage.speaker in named for passage in index.passages], dtype=np.float64)


def _dated(asked: Terms, index: Index) -> Scores:
    """How near the day of each passage is to the dates that the prompt names, 0..1."""
    if not asked.dates:
        return np.zeros(len(index))
    near = {day: max(nearness(date, day) for date in asked.dates) for day in set(index.days) if day is not None}
    return np.array([near[day] if day is not None else 0.0 for day in index.days])


def _days(passages: Iterable[Passage]) -> Iterator[Date | None]:
    """The day that each passage belongs to: that of the last heading with a date."""
    day = None
    for passage in passages:
        day = passage.terms.heading or day
        yield day
