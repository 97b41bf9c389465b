"""Which earlier texts of a conversation each text takes up again: those with which it shares enough of its keywords."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.keywords import keywords

THRESHOLD = 0.3  # of the larger of two sets of keywords: what is shared must be more

REACH = 2_000  # texts: what was said longer ago is not taken up, it is said anew; and the work stays linear
BLOCK = 64  # texts that are compared with all before them at a time: bounds the memory
FEW = 16  # texts that are compared one by one: a table of all words costs more than that
SPARSE = 8  # a table is made where one in so many pairs shares a word
COMMON = 1_000  # of these: a word that more of them have tells nothing, and all pairs that it makes cost too much

Words = NDArray[np.int64]
"""The keywords of a text as numbers, which mean the same in one process only."""
_Numbers = NDArray[np.intp]


def words(text: str) -> Words:
    """The keywords of a text, to be compared with those of others."""
    return np.fromiter(map(hash, keywords(text)), dtype=np.int64)


def mentions(said: Sequence[Words], start: int = 0, threshold: float = THRESHOLD) -> list[tuple[int, ...]]:
    """For each text from the place `start` on the places of those before it that it takes up, rising.

    `said` are the keywords of the texts in their order. A text takes one of the REACH before it up where they share
    more than `threshold` of the larger of their sets of keywords. A word that more than COMMON of these have counts as
    none of theirs.
    """
    if len(said) <= start:
        return []
    base = max(0, start - REACH)
    table, first, end = _Table.of(said[base:], threshold), start - base, len(said) - base
    if end - first <= FEW:
        return [tuple((table.one(n) + base).tolist()) for n in range(first, end)]
    found: list[list[int]] = [[] for _ in range(first, end)]
    for ones, others in table.blocks(first):
        for one, other in zip((ones - first).tolist(), (others + base).tolist(), strict=True):
            found[one].append(other)
    return [tuple(each) for each in found]


@dataclass(frozen=True, slots=True)
class _Table:
    """All words of all texts in one row: text `n` has those from `places[n]` to `places[n + 1]`, held by `holder`."""

    said: Words
    places: _Numbers
    holder: _Numbers
    enough: _Numbers

    @classmethod
    def of(cls, said: Sequence[Words], threshold: float) -> "_Table":
        sizes = np.array([len(each) for each in said], dtype=np.intp)
        return cls(
            said=np.concatenate(said) if said else np.zeros(0, dtype=np.int64),
            places=np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
            holder=np.repeat(np.arange(len(said)), sizes),
            enough=np.floor(threshold * sizes).astype(np.intp),
        )

    def one(self, n: int) -> _Numbers:
        """The places of the texts before the text `n` that it takes up."""
        base = max(0, n - REACH)
        reached = slice(self.places[base], self.places[n])
        own, before = np.sort(self.said[self.places[n] : self.places[n + 1]]), self.said[reached]
        if not len(own):
            return np.zeros(0, dtype=np.intp)
        nearest = np.minimum(np.searchsorted(own, before), len(own) - 1)
        shared = own[nearest] == before
        if len(before) > COMMON:
            shared &= (np.bincount(nearest[shared], minlength=len(own)) <= COMMON)[nearest]
        counts = np.bincount(self.holder[reached][shared] - base, minlength=n - base)
        return base + np.flatnonzero(counts > np.maximum(self.enough[n], self.enough[base:n]))

    def blocks(self, start: int) -> Iterator[tuple[_Numbers, _Numbers]]:
        """Pairs of a text from `start` on and one that it takes up, in order."""
        _, numbers = np.unique(self.said, return_inverse=True)
        by_word = np.argsort(numbers, kind="stable")
        holders = self.holder[by_word]
        texts = len(self.enough)
        # Where in `holders` those of the same word begin that are within reach.
        first = np.searchsorted(
            numbers[by_word] * texts + holders, numbers * texts + np.maximum(self.holder - REACH, 0)
        )
        before = np.empty(len(numbers), dtype=np.intp)
        before[by_word] = np.arange(len(numbers))
        before -= first
        before[before > COMMON] = 0
        for begin in range(start, texts, BLOCK):
            end = min(begin + BLOCK, texts)
            block = slice(self.places[begin], self.places[end])
            lengths = before[block]
            # Every pair of a text in the block and an earlier one that has one of its words, once for each word.
            at = np.repeat(first[block] - np.cumsum(lengths) + lengths, lengths)
            others = holders[at + np.arange(len(at))]
            yield self._taken(np.repeat(self.holder[block], lengths), others, begin, end)

    def _taken(self, ones: _Numbers, others: _Numbers, begin: int, end: int) -> tuple[_Numbers, _Numbers]:
        """Of pairs that stand once for each word that they share, those that share enough.

        By a table of all pairs where many share a word, by sorting where few do: else a long conversation of short
        messages would cost its length squared.
        """
        base = max(0, begin - REACH)
        rows, columns = end - begin, end - base
        pairs = (ones - begin) * columns + others - base
        if len(pairs) * SPARSE > rows * columns:
            shared = np.bincount(pairs, minlength=rows * columns).reshape(rows, columns)
            ones, others = np.nonzero(shared > np.maximum(self.enough[begin:end, None], self.enough[base:end]))
            return ones + begin, others + base
        pairs, counts = np.unique(pairs, return_counts=True)
        ones, others = np.divmod(pairs, columns)
        taken = counts > np.maximum(self.enough[begin + ones], self.enough[base + others])
        return ones[taken] + begin, others[taken] + base
