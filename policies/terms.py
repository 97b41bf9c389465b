"""What a text is found by: its words with their endings folded, its identifiers whole and in parts, CJK bigrams."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from policies.dates import Date, dates, heading
from policies.keywords import CJK, STOP_WORDS

LIMIT = 200_000

_RUN = re.compile(rf"[{CJK}]+|[^\W{CJK}_]+")
_IS_CJK = re.compile(rf"[{CJK}]")
_IDENTIFIER = re.compile(r"[^\W_](?:[\w./:@#\\-]*[^\W_])?", re.ASCII)
_JOINED = re.compile(r"[._/:@#\\]")
_DIGIT = re.compile(r"[0-9]")
_LONGEST = 200  # characters of an identifier that anybody writes again
_LETTERS = frozenset("aidmst")  # an article, a pronoun, and what apostrophes leave of other words
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", ""), ("es", ""), ("s", ""))


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a text with how often each occurs, their number, the dates it names, and the one that heads it."""

    counts: Mapping[str, int]
    length: int
    dates: tuple[Date, ...] = ()
    heading: Date | None = None


def read(text: str, speaker: str = "") -> Terms:
    """The terms of a text and of its speaker's name; of one over `LIMIT` characters, its first and last half of that.

    A date counts as a term too, one and the same however it is written.
    """
    if len(text) > LIMIT:
        text = f"{text[: LIMIT // 2]}\n{text[-LIMIT // 2 :]}"
    named = dates(text)
    counts = Counter(_terms(text))
    counts.update(_terms(speaker))
    counts.update(f"={date.month}-{date.day}" for date in named if date.day is not None)
    return Terms(counts, counts.total(), named, heading(text))


@lru_cache(maxsize=65536)
def fold(word: str) -> str:
    """An English word without the endings of number, tense and adverb, so that its forms meet; others as they are.

    A light stemmer: it may leave a stem that is no word, and keeps three letters at least.
    """
    if len(word) <= 3 or not (word.isascii() and word.isalpha()):
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not (ending == "s" and word[-2] in "su"):
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    return f"{word[:-1]}i" if len(word) > 3 and word[-1] == "y" else word


def _terms(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text):
        run = match.group()
        if _IS_CJK.match(run):
            yield from (run[i : i + 2] for i in range(max(1, len(run) - 1)))
        elif (word := run.lower()) not in STOP_WORDS and word not in _LETTERS:
            yield fold(word)
    for match in _IDENTIFIER.finditer(text):
        run = match.group()
        if len(run) <= _LONGEST and (_JOINED.search(run) or ("-" in run and _DIGIT.search(run))):
            yield f"={run.lower()}"
