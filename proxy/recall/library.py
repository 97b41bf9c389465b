"""What was read of messages: their terms and sentences, kept by content, so that a turn reads what it adds. (pure)"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.relevance import Passage
from policies.terms import Terms, read
from proxy.embeddings import key
from proxy.memories import Held, together
from proxy.recall import sentences
from proxy.wire.chat import Message
from proxy.wire.memo import Memo

LONGEST = 100_000
"""Characters: of a longer message the sentences at its beginning and at its end are read, half of these each."""

_TERM_BYTES = 90


@dataclass(frozen=True, slots=True)
class Sentence:
    """Characters `start` to `end` of a message's readable text, and the terms in them."""

    start: int
    end: int
    terms: Terms


class Library:
    """Reads messages, each once as long as it is remembered, in `max_bytes`. Safe to share between threads."""

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        self._passages = Memo[Passage](max_bytes * 7 // 16)
        self._sentences = Memo[Sequence[Sentence]](max_bytes * 7 // 16)
        self._keys = Memo[bytes](max_bytes // 8)

    def held(self) -> Held:
        """How much it holds."""
        return together(
            {"passages": self._passages.held, "sentences": self._sentences.held, "keys": self._keys.held},
        )

    def key(self, message: Message) -> bytes:
        """What the vectors of the message's text are kept under."""
        known = self._keys.get(message.digest)
        if known is None:
            known = key(message.text)
            self._keys.put(message.digest, known, len(known))
        return known

    def has_read(self, message: Message) -> bool:
        """Whether the message's passage is there."""
        return self._passages.get(message.digest) is not None

    def passage(self, message: Message) -> Passage:
        """The message as `relevance` reads it."""
        known = self._passages.get(message.digest)
        if known is None:
            known = Passage.of(message.text, message.name or "")
            self._passages.put(message.digest, known, _TERM_BYTES * len(known.terms.counts))
        return known

    def sentences(self, message: Message) -> Sequence[Sentence]:
        """The sentences of the message that have any terms, in order."""
        known = self._sentences.get(message.digest)
        if known is None:
            known = tuple(_sentences(message.text))
            self._sentences.put(message.digest, known, sum(_TERM_BYTES * len(each.terms.counts) for each in known))
        return known


def _sentences(text: str) -> list[Sentence]:
    if len(text) <= LONGEST:
        places = [*sentences.spans(text)]
    else:
        half = LONGEST // 2
        after = len(text) - half
        places = [*sentences.spans(text[:half])]
        places += [(start + after, end + after) for start, end in sentences.spans(text[after:])]
    found = (Sentence(start, end, read(text[start:end])) for start, end in places)
    return [sentence for sentence in found if sentence.terms.length]
