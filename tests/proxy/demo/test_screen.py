"""What the demonstration shows of a turn, as text."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from proxy.demo import screen
from tests.proxy.records import record

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look it\nup"}]
EVICT, TARGET = 0.85, 0.70


def shown(what: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    return console.file.getvalue()  # type: ignore[attr-defined]


def drawn(width: int = 100, **fields: Any) -> str:
    return shown(screen.bar(record(**fields), width, evict=EVICT, target=TARGET), width)


def test_a_bar_fills_as_the_window_does() -> None:
    half = drawn(budget=3000, tokens_before=1500, tokens_after=1500, pinned_tokens=300, slots=[])

    cells = half[half.index("▕") + 1 : half.index("▏")]
    assert cells.count("█") == pytest.approx(len(cells) / 2, abs=1)
    assert (cells.index("┊"), cells.index("│")) == (round(len(cells) * TARGET), round(len(cells) * EVICT))
    assert "1,500 of 3,000" in half
    assert "left out" not in half


def test_what_a_cut_takes_is_to_be_seen_in_the_bar() -> None:
    cut = drawn(budget=4000)

    assert cut.count("░") == pytest.approx(cut.count("█") / 2.1, abs=1)
    assert "2,100 of 4,000, 1,000 left out" in cut


def test_what_was_not_counted_is_a_bound() -> None:
    bound = drawn(tokens_before=None, tokens_after=None, utilization_before=0.25, slots=[], pinned_tokens=None)

    assert "▒" in bound
    assert "at most 25%: not counted" in bound


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_bar_is_one_line(width: int) -> None:
    assert len(drawn(width).splitlines()) == 1


def test_a_cut_names_what_went_and_why() -> None:
    table = shown(screen.cut(record(), MESSAGES))

    assert "cut by priority: 3,100 → 2,100 tokens" in table
    assert "- #1, #2 tool" in table
    assert "Look it up" in table
    assert "lowest score" in table
    assert "Be brief" not in table, "it was kept"


def test_a_note_is_told_of_with_a_cut_and_without() -> None:
    note = {"index": None, "messages": [3, 4], "role": "user", "tokens": 60, "action": "recall", "pinned": False}
    made = record(slots=[{**note, "reason": "quotes"}], slots_evicted=0)

    (line,) = screen.brought_back(made)
    assert "+ note of #3, #4, 60 tokens: quotes" in line.plain
    assert "+ note of #3, #4" in shown(screen.cut(made, MESSAGES))
    assert screen.brought_back(record()) == []


def typed(text: str, lines: int | None) -> list[str]:
    console = Console(file=io.StringIO(), width=40)
    typing = screen.Typing(console, "dim", lines)
    for piece in text.split(" "):
        typing.take(f" {piece}")
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_long_answer_ends_in_an_ellipsis_and_fits() -> None:
    lines = typed("abcd " * 40, 2)

    assert len(lines) == 2
    assert lines[-1].endswith(" …")
    assert max(map(len, lines)) <= 40


def test_an_answer_is_shown_whole_where_it_matters() -> None:
    lines = typed("abcd " * 40, None)

    assert " ".join(line.strip() for line in lines).count("abcd") == 40
