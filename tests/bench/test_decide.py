import gc
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.decide import DECISION, LEAST, REQUEST, Effort, app, decide, served, talk
from bench.turns import Desk, Instant, cut
from policies.registry import create, names
from policies.relevance import Index
from proxy.pipeline.budget import Trigger
from proxy.serving import GARBAGE_FROM


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("dense", [True, False])
def test_every_policy_has_something_to_decide(name: str, dense: bool) -> None:
    said = talk(40, seed=3)
    index = Index.of(slot.text for slot in said.window.slots[:-1]) if dense else None
    assert decide(create(name), said, index, dense=dense) > 0


def test_the_same_seed_gives_the_same_conversation() -> None:
    assert talk(20, 1).window == talk(20, 1).window
    assert talk(20, 1).window != talk(20, 2).window


@pytest.mark.parametrize("model", [None, Instant()], ids=["no model", "a model"])
def test_figures_are_written_by_policy_length_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Instant | None
) -> None:
    monkeypatch.setattr("bench.decide.installed", lambda: model)
    out = tmp_path / "times.json"
    args = ["--slots", "12,40", "--rounds", "2", "--policies", "fifo,hybrid", "--json", str(out)]
    args += ["--cpu"] if model else []
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert {name: list(sizes) for name, sizes in found.items()} == {"fifo": ["12", "40"], "hybrid": ["12", "40"]}
    assert tuple(found["fifo"]["12"]) == ("warm", "cold", "request")
    assert tuple(found["fifo"]["12"]["request"]) == ("prepared", "new")
    assert tuple(found["hybrid"]["40"]) == (*DECISION, "request")
    assert tuple(found["hybrid"]["40"]["request"]) == (REQUEST if model else ("prepared", "new"))
    assert 0 < found["hybrid"]["40"]["request"]["new"]["median"] <= found["hybrid"]["40"]["request"]["new"]["p99"]
    assert ("no model installed" in result.output) == (model is None)


@pytest.mark.parametrize(
    ("effort", "free", "spent"),
    [
        (Effort(5, 60.0), 0, 5),
        (Effort(5, 60.0), 1, 6),
        (Effort(5, 0.0), 0, LEAST),
        (Effort(5, 0.0), 1, LEAST + 1),
        (Effort(2, 0.0), 0, 2),
    ],
    ids=["all", "and one before", "no time", "no time, and one before", "fewer than the least"],
)
def test_a_figure_is_of_as_many_as_there_is_time_for(effort: Effort, free: int, spent: int) -> None:
    assert [*effort.spend(iter(range(100)), free)] == [*range(spent)]


def test_a_figure_of_fewer_decisions_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.decide.installed", lambda: None)
    out = tmp_path / "times.json"
    args = ["--slots", "12", "--rounds", "9", "--seconds", "0", "--policies", "fifo", "--json", str(out)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert "(3)" in result.output
    assert json.loads(out.read_text())["fifo"]["12"]["request"]["new"]["n"] == 3


def test_the_interpreter_is_left_as_it_was() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    with served():
        assert (gc.get_threshold()[0], gc.get_freeze_count() > 0) == (GARBAGE_FROM, True)
    assert (gc.get_threshold(), sys.getswitchinterval()) == before


@pytest.mark.parametrize("slots", [12, 41, 200])
async def test_the_cut_comes_with_the_request_that_is_timed(slots: int) -> None:
    """Its turns before are under the threshold, and what they prepared is there."""
    desk = Desk(Instant())
    texts = [slot.text for slot in talk(slots, 5).window.slots[1:]]
    cold = await cut(Desk(None), create("hybrid"), texts, prepared=False)
    made = await cut(desk, create("hybrid"), texts, prepared=True)
    desk.close()
    assert made.outcome.trigger is cold.outcome.trigger is Trigger.NORMAL
    assert (made.outcome.prepared, cold.outcome.prepared) == ("parts", "none")
    assert made.outcome.gathered is not None
    assert made.outcome.gathered["waited"] == 1, "the prompt"


@pytest.mark.parametrize(
    ("args", "problem"),
    [(["--slots", "5"], "from 10 up"), (["--slots", "x"], "got 'x'"), (["--policies", "hybird"], "did you mean")],
)
def test_options_that_make_no_sense_are_refused(args: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())  # as in one line
