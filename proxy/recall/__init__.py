"""What of all that was left out comes back for a prompt: the most relevant messages, of long ones sentences. (pure)"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.relevance import Index, Passage, bm25
from policies.terms import Terms, read
from proxy.conversations.notes import Note, Quote, label
from proxy.recall.library import Library, Sentence
from proxy.recall.missing import Spans
from proxy.wire.chat import Message

MARK = "123456"  # as long as any
HEAD = 7  # tokens: the least that the line above a quote takes
JOINT = 3  # tokens between two quotes of a message
LEAST = 4  # tokens: what is left of a note's room below that is not worth a quote
SHARE, SMALL = 0.5, 200  # of a note's room, or so many tokens: a message that takes more is quoted in part
PASSED_OVER = 8  # messages, the most relevant first, that find no room before the search for smaller ones ends


def choose(
    note: Note,
    messages: Sequence[Message],
    missing: Mapping[int, Spans],
    scores: Mapping[int, float],
    query: str,
    room: int,
    *,
    library: Library,
    count: Callable[[str], int],
    cost: Callable[[Note], int],
) -> Note | None:
    """The note with quotes of what is most relevant, so that it costs at most `room` tokens; None if nothing is.

    `missing` are the characters that may come back, by message; `scores` the relevance of each message, where it
    has one. `count` gives the tokens of a text, `cost` those that a note adds to the prompt.
    """
    ranked = sorted((i for i in missing if scores.get(i, 0.0) > 0), key=lambda i: (-scores[i], i))
    if not ranked:
        return None
    asked = read(query)

    def spent(quotes: Sequence[Quote]) -> int:
        return introduced(messages, quotes, count) + sum(_said(messages, quote, count) for quote in quotes)

    first = (Quote(ranked[0], 0, 1),)
    left = room - cost(replace(note, quotes=first)) + spent(first)
    picked: list[tuple[Quote, ...]] = []
    most = max(SMALL, int(SHARE * left))
    passed = 0
    for index in ranked:
        if left < HEAD + LEAST or passed >= PASSED_OVER:
            break
        quotes = tuple(_quotes(messages[index], missing[index], index))
        if quotes and spent(quotes) > min(left, most):
            head = introduced(messages, (Quote(index, 0, 1),), count)
            quotes = _best(messages[index], missing[index], index, asked, min(left, most) - head, library, count)
        if quotes and (tokens := spent(quotes)) <= left:
            picked.append(quotes)
            left -= tokens
        else:
            passed += 1
    while picked:
        made = replace(note, quotes=tuple(sorted(quote for quotes in picked for quote in quotes)))
        if cost(made) <= room:
            return made
        picked.pop()
    return None


def introduced(messages: Sequence[Message], quotes: Sequence[Quote], count: Callable[[str], int]) -> int:
    """Tokens of the line above the quotes of one message, and of what joins them."""
    message = messages[quotes[0].message]
    whole = len(quotes) == 1 and (quotes[0].start, quotes[0].end) == (0, len(message.text))
    return count(f"\n{MARK} {label(message, quotes[0].message, whole)}:\n") + JOINT * (len(quotes) - 1)


def _said(messages: Sequence[Message], quote: Quote, count: Callable[[str], int]) -> int:
    return count(messages[quote.message].text[quote.start : quote.end])


def _quotes(message: Message, spans: Spans, index: int) -> Iterator[Quote]:
    """The spans without white space around them."""
    text = message.text
    for start, end in spans:
        piece = text[start:end]
        own = piece.strip()
        if own:
            at = start + len(piece) - len(piece.lstrip())
            yield Quote(index, at, at + len(own))


def _best(
    message: Message,
    spans: Spans,
    index: int,
    asked: Terms,
    room: int,
    library: Library,
    count: Callable[[str], int],
) -> tuple[Quote, ...]:
    """The sentences within the spans that say most about what is asked, up to `room` tokens."""
    found = [each for each in library.sentences(message) if any(a <= each.start and each.end <= b for a, b in spans)]
    scores = relevant(found, asked)
    chosen: list[Sentence] = []
    for i in sorted(range(len(found)), key=lambda i: (-scores[i], i)):
        if room < LEAST or (chosen and scores[i] <= 0):
            break
        tokens = count(message.text[found[i].start : found[i].end]) + JOINT
        if tokens <= room:
            chosen.append(found[i])
            room -= tokens
    return joined(chosen, found, index)


def relevant(sentences: Sequence[Sentence], asked: Terms) -> Sequence[float]:
    """How much each sentence has of what is asked, 0 and more; a sentence next to a good one gets a little."""
    if not sentences:
        return ()
    own = bm25(asked, Index(tuple(Passage(sentence.terms) for sentence in sentences)))
    padded = np.pad(own, 1)
    return [float(score) for score in own + 0.25 * np.maximum(padded[:-2], padded[2:])]


def joined(chosen: Sequence[Sentence], found: Sequence[Sentence], index: int) -> tuple[Quote, ...]:
    """Quotes of the chosen sentences in their order, those that follow each other as one."""
    places = {sentence.start: i for i, sentence in enumerate(found)}
    quotes: list[Quote] = []
    last = -math.inf
    for sentence in sorted(chosen, key=lambda each: each.start):
        if places[sentence.start] == last + 1:
            quotes[-1] = replace(quotes[-1], end=sentence.end)
        else:
            quotes.append(Quote(index, sentence.start, sentence.end))
        last = places[sentence.start]
    return tuple(quotes)
