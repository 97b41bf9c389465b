"""What of all that was left out comes back for a prompt: the most relevant messages, of long ones sentences. (pure)"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.relevance import Index, Passage, bm25
from policies.terms import Terms, read
from proxy.conversations.notes import Note, Quote
from proxy.recall.library import Library, Sentence
from proxy.recall.missing import Spans
from proxy.wire.chat import Message

LEAST = 4  # tokens: what is left of a note's room below that is not worth a quote
SHARE, SMALL = 0.5, 160  # of a note's room, or so many tokens: a message that takes more is quoted in part
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
    label = count("123456789 #100 assistant, in part:\n\n")
    left = room - cost(replace(note, quotes=(Quote(ranked[0], 0, 1),))) + label
    picked: list[tuple[Quote, ...]] = []
    asked = read(query)
    most = max(SMALL, int(SHARE * left))
    passed = 0
    for index in ranked:
        if left < label + LEAST or passed >= PASSED_OVER:
            break
        quotes = tuple(_quotes(messages[index], missing[index], index))
        spent = label + sum(count(messages[index].text[quote.start : quote.end]) for quote in quotes)
        if spent > min(left, most):
            quotes = _best(messages[index], missing[index], index, asked, min(left, most) - label, library, count)
            spent = label + sum(count(messages[index].text[quote.start : quote.end]) for quote in quotes)
        if quotes:
            picked.append(quotes)
            left -= spent
        else:
            passed += 1
    while picked:
        made = replace(note, quotes=tuple(sorted(quote for quotes in picked for quote in quotes)))
        if cost(made) <= room:
            return made
        picked.pop()
    return None


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
        tokens = count(message.text[found[i].start : found[i].end]) + 2  # what joins quotes
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
