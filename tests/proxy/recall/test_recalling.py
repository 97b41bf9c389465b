"""Notes keep within their share, and what is left of it is for prompts that ask for what was left out."""

import pytest

from policies.types import Kind
from proxy import wire
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Note, Quote
from proxy.conversations.placed import Placed
from proxy.pipeline.prompt import Prompt
from proxy.recall.recalling import MORE, NARROW, PLAINLY, forgotten, limit, share, wanted, without_recall
from proxy.wire import grouping
from tests.proxy.dialogues import Message, assistant, body, call, route, system, user


def prompt(used: int, *notes: int) -> Prompt:
    placed = tuple(Placed(Note(kind=Kind.RECALL, before=n), "", tokens) for n, tokens in enumerate(notes))
    return Prompt(groups=(), messages=(), tokens=(), overhead=used - sum(notes), notes=placed)


@pytest.mark.parametrize(
    ("live", "plain", "last", "tokens"),
    [
        pytest.param((), 1.0, False, 450, id="half for a prompt that points back"),
        pytest.param((300,), 1.0, False, 300, id="half of what is left"),
        pytest.param((), PLAINLY - NARROW, False, 0, id="nothing for one that goes on"),
        pytest.param((), PLAINLY - NARROW / 2, False, 112, id="less where it is less plain"),
        pytest.param((), PLAINLY - NARROW * 0.7, False, 0, id="nothing where that is too little to say anything"),
        pytest.param((850,), PLAINLY + MORE, False, 25, id="little where there is little, and it is plain"),
        pytest.param((450,), PLAINLY, False, 168, id="less once half is taken"),
        pytest.param((300,), 0.0, True, 600, id="all for one that nothing follows on"),
        pytest.param((900, 50), 1.0, False, 0, id="nothing where all is taken"),
    ],
)
def test_how_large_a_note_may_be(live: tuple[int, ...], plain: float, last: bool, tokens: int) -> None:
    assert limit(prompt(2000, *live), 900, 10_000, plain=plain, last=last) == tokens


@pytest.mark.parametrize(
    ("live", "plain", "tokens"),
    [
        pytest.param((), 1.0, 900, id="all for a prompt that points back"),
        pytest.param((300,), 1.0, 600, id="all that is left"),
        pytest.param((), PLAINLY - NARROW / 2, 224, id="less where it is less plain"),
        pytest.param((), PLAINLY - NARROW, 0, id="nothing for one that goes on"),
    ],
)
def test_a_note_may_take_the_whole_share_where_no_cache_is_at_stake(
    live: tuple[int, ...], plain: float, tokens: int
) -> None:
    assert limit(prompt(2000, *live), 900, 10_000, plain=plain, whole=True) == tokens


def test_a_note_never_reaches_the_next_threshold() -> None:
    assert limit(prompt(2000), 900, 2050, plain=1.0) == 50


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
    assert share(route("rwr"), route("rwr").policy, 1000) == 400
    assert share(route("fifo"), route("fifo").policy, 1000) == 0
    assert share(route("rwr", recall_budget=0.0), route("rwr").policy, 1000) == 0


def test_a_cut_takes_recall_notes_and_leaves_summaries() -> None:
    recall = Note(kind=Kind.RECALL, before=3, quotes=(Quote(1, 0, 1),))
    summary = Note(kind=Kind.SUMMARY, before=1, covers=(1,))

    assert without_recall(Ledger(notes=(summary, recall))).notes == (summary,)
    assert not forgotten(Ledger(notes=(summary,)))
    assert forgotten(Ledger(drops=frozenset({1})))
