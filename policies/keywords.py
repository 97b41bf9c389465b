"""The keywords of a text, in any script, and how much two sets of them share."""

import re
import string
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

LIMIT = 50
REACH = 4096  # characters read: bounds the work on a giant text and what is kept of it

CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003fffd"
_RUN = re.compile(rf"[{CJK}]{{2,}}|[^\W{CJK}]{{2,}}")
_IS_CJK = re.compile(rf"[{CJK}]")
_FIRST_CJK = CJK[0]

_ENGLISH = """
    about above after again all also am an and any are as at be because been before being below between both but by
    can could did do does doing don down during each few for from further get got had has have having he her here hers
    him his how if in into is isn it its itself just ll let me more most my no nor not now of off ok okay on once one
    only or other our ours out over own please re same she should so some such than that the their theirs them then
    there these they this those through to too under until up us ve very was wasn we were what when where which while
    who whom why will with won would yes you your yours
"""
STOP_WORDS = frozenset(_ENGLISH.split())
_STOP_CHARACTERS = frozenset("的了是在我你他她它们有吗呢吧啊也都就和与及这那のはがをにでとも")


def keywords(text: str) -> frozenset[str]:
    """The keywords at the beginning of `text`: lower-cased, of two characters or more, stop words left out.

    A run of Chinese, Japanese or Korean characters counts as its character bigrams, those with a particle left out.
    The first 50 that are left are taken, repetitions included, from the first 4,096 characters.
    """
    return _keywords(text[:REACH])


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared keywords as a share of the larger set, 0..1."""
    return len(one & other) / max(len(one), len(other), 1)


def plain(kept: str) -> bytes:
    """A table for `bytes.translate`: ASCII letters in lower case, digits and what is `kept`; a space for all else."""
    letters = f"{string.ascii_letters}{string.digits}{kept}".encode()
    return bytes(bytes([code]).lower()[0] if code in letters else ord(" ") for code in range(256))


_PLAIN = plain("_")


@lru_cache(maxsize=4096)
def _keywords(text: str) -> frozenset[str]:
    if text.isascii():
        words = text.encode().translate(_PLAIN).decode().split()
        return frozenset([word for word in words if len(word) > 1 and word not in STOP_WORDS][:LIMIT])
    return frozenset(islice(_words(text), LIMIT))


def _words(text: str) -> Iterator[str]:
    for run in _RUN.findall(text):
        if run >= _FIRST_CJK and _IS_CJK.match(run):
            pairs = (run[i : i + 2] for i in range(len(run) - 1))
            yield from (pair for pair in pairs if _STOP_CHARACTERS.isdisjoint(pair))
        elif (word := run.lower()) not in STOP_WORDS:
            yield word
