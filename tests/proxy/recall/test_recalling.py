"""Notes keep within their share, and what is left of it is for prompts that ask for what was left out."""

import pytest

from policies.relevance import Passage
from policies.types import Kind
from proxy import wire
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Note, Quote
from proxy.conversations.placed import Placed
from proxy.pipeline.prompt import Prompt
from proxy.recall.recalling import forgotten, limit, points_back, share, wanted, without_recall
from proxy.wire import grouping
from tests.proxy.dialogues import Message, assistant, body, call, route, system, user


def prompt(used: int, *notes: int) -> Prompt:
    placed = tuple(Placed(Note(kind=Kind.RECALL, before=n), "", tokens) for n, tokens in enumerate(notes))
    return Prompt(groups=(), messages=(), tokens=(), overhead=used - sum(notes), notes=placed)


@pytest.mark.parametrize(
    ("live", "asks", "last", "tokens"),
    [
        pytest.param((), True, False, 300, id="a third for a prompt that asks"),
        pytest.param((300,), True, False, 200, id="a third of what is left"),
        pytest.param((), False, False, 112, id="an eighth for one that goes on"),
        pytest.param((200,), False, False, 0, id="nothing where an eighth is too little"),
        pytest.param((300,), True, True, 600, id="all for one that nothing follows on"),
        pytest.param((900, 50), True, False, -17, id="nothing where all is taken"),
    ],
)
def test_how_large_a_note_may_be(live: tuple[int, ...], asks: bool, last: bool, tokens: int) -> None:
    assert limit(prompt(2000, *live), 900, 10_000, asks=asks, last=last) == tokens


def test_a_note_never_reaches_the_next_threshold() -> None:
    assert limit(prompt(2000), 900, 2050, asks=True) == 50


@pytest.mark.parametrize(
    ("query", "back"),
    [
        pytest.param("Which berth did the Halcyon get?", True, id="a question about what is gone"),
        pytest.param("哪个泊位给了Halcyon？", True, id="in another script"),
        pytest.param("Halcyon berth", True, id="no question, but all of its words are there"),
        pytest.param("Is the weather in the north better?", False, id="a question about what is there"),
        pytest.param("Thanks a lot!", False, id="nothing that was said"),
        pytest.param("Then please write a long and friendly letter about the berth", False, id="goes on"),
    ],
)
def test_whether_a_prompt_points_back(query: str, back: bool) -> None:
    old = [Passage.of("The Halcyon got berth B7.")]
    new = [Passage.of("The weather in the north is fine."), Passage.of("The crew likes it.")]

    assert points_back(query, old, new, [*old, *new, *map(Passage.of, ("one", "two", "three"))]) is back


@pytest.mark.parametrize(
    ("messages", "asked"),
    [
        ([system(), user("a")], True),
        ([user("a"), assistant("prefix")], True),
        ([user("a"), *call(0, "b")], False),
        ([user("a"), call(0, "b")[0]], False),
        ([assistant("a")], False),
    ],
    ids=["a prompt", "an answer begun", "a result", "a call", "no prompt"],
)
def test_notes_stand_between_turns_alone(messages: list[Message], asked: bool) -> None:
    assert wanted(wire.parse(body(messages)).messages) is asked
    assert grouping.group(wire.parse(body(messages)).messages)


def test_policies_that_do_not_look_at_the_prompt_have_no_share() -> None:
    assert share(route("rwr"), route("rwr").policy, 1000) == 150
    assert share(route("fifo"), route("fifo").policy, 1000) == 0
    assert share(route("rwr", recall_budget=0.0), route("rwr").policy, 1000) == 0


def test_a_cut_takes_recall_notes_and_leaves_summaries() -> None:
    recall = Note(kind=Kind.RECALL, before=3, quotes=(Quote(1, 0, 1),))
    summary = Note(kind=Kind.SUMMARY, before=1, covers=(1,))

    assert without_recall(Ledger(notes=(summary, recall))).notes == (summary,)
    assert not forgotten(Ledger(notes=(summary,)))
    assert forgotten(Ledger(drops=frozenset({1})))
