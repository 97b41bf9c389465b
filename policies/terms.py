"""What a text is found by: its words with their endings folded, its identifiers whole and in parts, CJK bigrams."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from policies.dates import Date, dates, heading
from policies.keywords import CJK, STOP_WORDS, plain

LIMIT = 200_000

_RUN = re.compile(rf"[{CJK}]+|[^\W{CJK}_]+")
_IS_CJK = re.compile(rf"[{CJK}]")
_FIRST_CJK = CJK[0]
_JOINTS = "._/:@#\\-"  # what stands within identifiers, and between words
_JOINED = re.compile(r"[._/:@#\\0-9]")
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
    words = _words(text)
    named = dates(text, words)
    counts = Counter(_folded(words if text.isascii() else list(_runs(text))))
    for others in (_identifiers(text), _spoken(speaker), [f"={d.month}-{d.day}" for d in named if d.day is not None]):
        if others:
            counts.update(others)
    del counts[""]
    return Terms(counts, counts.total(), named, heading(text))


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


def _words(text: str) -> list[str]:
    """The ASCII words of a text, in lower case."""
    return text.encode("ascii", "replace").translate(_WORDS).decode("ascii").split()


def _identifiers(text: str) -> list[str]:
    """The terms of a text that are written with joints or, where these are hyphens, with digits."""
    runs = text.encode("ascii", "replace").translate(_IDENTIFIERS).decode("ascii").split()
    found = [run.strip(_JOINTS) for run in runs if not run.isalnum()]
    return [f"={run}" for run in found if len(run) <= _LONGEST and not run.isalnum() and _JOINED.search(run)]


def _runs(text: str) -> Iterator[str]:
    """The words of a text in any script, and for CJK the bigrams of its characters."""
    for run in _RUN.findall(text):
        if run >= _FIRST_CJK and _IS_CJK.match(run):
            yield from (run[i : i + 2] for i in range(max(1, len(run) - 1)))
        else:
            yield run.lower()


def _folded(words: Sequence[str]) -> Iterable[str]:
    """The terms of words in lower case, empty ones for those that say nothing."""
    if max(map(len, words), default=0) <= _LONGEST:
        return map(_term, words)
    return [_term(word) if len(word) <= _LONGEST else word for word in words]  # a blob is not kept in memory


@lru_cache(maxsize=65536)
def _term(word: str) -> str:
    """The term that a word in lower case counts as; empty for one that says nothing."""
    return "" if word in STOP_WORDS or word in _LETTERS else fold(word)


_WORDS, _IDENTIFIERS = plain(""), plain(_JOINTS)


@lru_cache(maxsize=1024)
def _spoken(speaker: str) -> tuple[str, ...]:
    words = _words(speaker) if speaker.isascii() else list(_runs(speaker))
    return (*_folded(words), *_identifiers(speaker))
