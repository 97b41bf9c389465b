import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.decide import STATES, app, decide, talk
from policies.registry import create, names
from policies.relevance import Index


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("dense", [True, False])
def test_every_policy_has_something_to_decide(name: str, dense: bool) -> None:
    said = talk(40, seed=3)
    index = Index.of(slot.text for slot in said.window.slots[:-1]) if dense else None
    assert decide(create(name), said, index, dense=dense) > 0


def test_the_same_seed_gives_the_same_conversation() -> None:
    assert talk(20, 1).window == talk(20, 1).window
    assert talk(20, 1).window != talk(20, 2).window


def test_figures_are_written_by_policy_length_and_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.decide.embedding", lambda rounds: None)
    out = tmp_path / "times.json"
    args = ["--slots", "12,20", "--rounds", "2", "--policies", "fifo,hybrid", "--json", str(out)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert {name: list(sizes) for name, sizes in figures.items()} == {"fifo": ["12", "20"], "hybrid": ["12", "20"]}
    assert list(figures["fifo"]["12"]) == ["warm", "cold"]
    assert list(figures["hybrid"]["20"]) == list(STATES)
    assert 0 < figures["hybrid"]["20"]["cold"]["median"] <= figures["hybrid"]["20"]["cold"]["p99"]
    assert "no model installed" in result.output


@pytest.mark.parametrize(
    ("args", "problem"),
    [(["--slots", "5"], "from 10 up"), (["--slots", "x"], "got 'x'"), (["--policies", "hybird"], "did you mean")],
)
def test_options_that_make_no_sense_are_refused(args: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())  # as in one line
