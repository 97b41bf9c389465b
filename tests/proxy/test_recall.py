"""What comes back is what the prompt is about, as much of it as there is room for, verbatim."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.types import Kind
from proxy import tokens, wire
from proxy.conversations.notes import Keys, Note, Quote, render
from proxy.conversations.placed import alone
from proxy.recall import choose
from proxy.recall.library import Library
from proxy.recall.missing import Spans
from proxy.wire.chat import Message
from tests.proxy.dialogues import body, system, user, words

COUNTER = tokens.counter("gpt-4o")
KEYS = Keys(b"key")


def read(*messages: dict[str, Any]) -> tuple[Message, ...]:
    return wire.parse(body(messages)).messages


def cost(messages: tuple[Message, ...], note: Note) -> int:
    return COUNTER.message(alone(render(note, messages, KEYS) or ""))


def chosen(
    messages: tuple[Message, ...],
    scores: Mapping[int, float],
    query: str,
    room: int,
    missing: Mapping[int, Spans] | None = None,
) -> Note | None:
    whole = {i: ((0, len(m.text)),) for i, m in enumerate(messages)} if missing is None else missing
    note = Note(kind=Kind.RECALL, before=len(messages))
    return choose(
        note,
        messages,
        whole,
        scores,
        query,
        room,
        library=Library(),
        count=COUNTER.content,
        cost=lambda made: cost(messages, made),
    )


def quoted(messages: tuple[Message, ...], note: Note | None) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for quote in note.quotes if note is not None else ():
        found.setdefault(quote.message, []).append(messages[quote.message].text[quote.start : quote.end])
    return found


SHORT = read(user("The pilot is Ida."), user("The crane is red."), user("The tide turns at nine."))


def test_the_most_relevant_come_whole_and_in_their_order() -> None:
    two = tuple(Quote(i, 0, len(SHORT[i].text)) for i in (0, 2))
    room = cost(SHORT, Note(kind=Kind.RECALL, before=3, quotes=two)) + 9
    note = chosen(SHORT, {0: 0.4, 1: 0.1, 2: 0.9}, "when", room)

    assert quoted(SHORT, note) == {0: ["The pilot is Ida."], 2: ["The tide turns at nine."]}


def test_what_has_no_relevance_stays_away_whatever_the_room() -> None:
    assert quoted(SHORT, chosen(SHORT, {0: 0.0, 1: 0.2}, "crane", 4000)) == {1: ["The crane is red."]}
    assert chosen(SHORT, {0: 0.0, 2: 0.0}, "crane", 4000) is None
    assert chosen(SHORT, {}, "crane", 4000) is None


@pytest.mark.parametrize("room", [0, 20, 60, 80, 120, 200, 400, 800])
def test_a_note_keeps_within_its_room(room: int) -> None:
    messages = read(
        *(user(f"Ship {n}: {words(20 + 9 * n, n)}. It lies at berth {n}. {words(9, n)}!") for n in range(9))
    )
    note = chosen(messages, {n: (n * 7 % 9 + 1) / 9 for n in range(9)}, "Where does ship 4 lie?", room)

    assert note is None or cost(messages, note) <= room
    assert (note is not None) == (room >= 60)


def test_of_a_long_message_the_sentences_that_answer_come() -> None:
    log = "\n".join(f"{n:04d} {words(12, n)}" for n in range(300))
    secret = "0150 the harbour master's code is QX-4471 since Monday"
    messages = read(system(), user(log.replace("\n0150 ", f"\n{secret}\n0150 ")))
    note = chosen(messages, {1: 1.0}, "Which code does the harbour master have?", 200)

    assert note is not None
    assert secret in "\n".join(quoted(messages, note)[1])
    assert cost(messages, note) <= 200


def test_only_what_is_missing_comes_back() -> None:
    text = "Kept at the start. The key hangs in shed 5. The key is brass. Kept at the end."
    messages = read(user(text))
    start, end = text.index("The key hangs"), text.index(" Kept at the end")

    assert quoted(messages, chosen(messages, {0: 1.0}, "key", 400, {0: ((start, end),)})) == {0: [text[start:end]]}


def test_quotes_are_verbatim_in_any_script() -> None:
    messages = read(user("港口的密码是 8841。\n明天有雾。"), user("Ça coûte 5 €. 🚢"))

    assert quoted(messages, chosen(messages, {0: 0.5, 1: 0.6}, "密码", 400)) == {
        0: ["港口的密码是 8841。\n明天有雾。"],
        1: ["Ça coûte 5 €. 🚢"],
    }
