"""Which characters of a conversation a prompt lacks, so that they can come back. (pure)"""

from collections.abc import Iterable, Sequence

from proxy.conversations.ledger import Ledger
from proxy.wire.chat import Call, Message, Text
from proxy.wire.grouping import Group

Spans = tuple[tuple[int, int], ...]
"""Ranges of characters of a message's readable text, in order."""


def missing(ledger: Ledger, index: int, message: Message) -> Spans:
    """What of a message's readable text is not sent, and is not quoted by a live note either."""
    found = left_out(ledger, index, message)
    if found and ledger.notes:
        quoted = [(q.start, q.end) for note in ledger.notes for q in note.quotes if q.message == index]
        found = without(found, quoted)
    return found


def left_out(ledger: Ledger, index: int, message: Message) -> Spans:
    """What of a message's readable text the ledger takes away."""
    if index in ledger.drops:
        return ((0, len(message.text)),) if message.text else ()
    if index in ledger.clears:
        end = sum(len(part.text) + 1 for part in message.parts if isinstance(part, Text)) - 1
        return ((0, end),) if end > 0 else ()
    cuts = {cut.part: cut for cut in ledger.truncations.get(index, ())}
    found = []
    start = 0
    for number, part in enumerate(message.parts):
        if not isinstance(part, Text):
            continue
        if (cut := cuts.get(number)) is not None and cut.head + cut.tail < len(part.text):
            found.append((start + cut.head, start + len(part.text) - cut.tail))
        start += len(part.text) + 1
    return tuple(found)


def without(spans: Spans, taken: Iterable[tuple[int, int]]) -> Spans:
    """The spans with others cut out of them."""
    left = list(spans)
    for start, end in taken:
        left = [
            piece for one, other in left for piece in ((one, min(other, start)), (max(one, end), other)) if _any(piece)
        ]
    return tuple(left)


def named_results(messages: Sequence[Message], groups: Sequence[Group], tools: frozenset[str]) -> frozenset[int]:
    """The indexes of the results of these tools."""
    if not tools:
        return frozenset()
    found = set()
    for group in groups:
        calls = [call for i in group.messages for call in messages[i].calls]
        for i in group.messages:
            if tools.intersection(_names(messages[i], calls)):
                found.add(i)
    return frozenset(found)


def _names(message: Message, calls: Sequence[Call]) -> Iterable[str]:
    """The tools whose result a message may be; of results without an id, all that were called."""
    if message.answers is None:
        return ()
    if message.role == "function":
        return (message.answers,)
    own = [call.name for call in calls if call.id == message.answers]
    return (*(own or (call.name for call in calls)), message.name or "")


def _any(span: tuple[int, int]) -> bool:
    return span[0] < span[1]
