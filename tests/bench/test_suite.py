import importlib.util
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import suite
from bench.results import STOPPED
from bench.suite import Step, app, steps


def names(data: Path | None, model_url: str = "", *, full: bool = False) -> list[str]:
    return [step.name for step in steps(data, model_url, "local", full=full)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (folder := tmp_path / "data").mkdir()
    for name in ("support", "agents"):
        (folder / f"{name}.jsonl").touch()
    return folder


@pytest.mark.parametrize("full", [False, True])
def test_only_what_can_be_measured_is(data: Path, full: bool) -> None:
    alone = ["load", "hot", "decide", "planted"]
    with_data = ["evidence-support", "vectors-support", "replayed-support", "evidence-agents", "vectors-agents"]

    assert names(None, full=full) == alone
    assert names(data, full=full) == [*alone, *with_data, "intent", "cache"]
    assert names(data, "http://host/v1", full=full)[-2:] == ["answers-planted", "answers-support"]


def test_every_step_is_a_module_of_its_own_output(data: Path) -> None:
    found = [*steps(data, "http://host/v1", "local", full=True)]

    assert len({step.name for step in found}) == len(found)
    assert all(importlib.util.find_spec(step.module) for step in found)


def test_what_can_go_on_is_told_to(tmp_path: Path) -> None:
    kept = Step("a", "bench.quality", ("--planted", "1"), kept=True)
    other = Step("b", "bench.hot", (), None)

    assert "--resume" in kept.command(tmp_path, resume=True)
    assert "--resume" not in kept.command(tmp_path, resume=False)
    assert other.command(tmp_path, resume=True) == [sys.executable, "-m", "bench.hot"]


def test_commands_are_shown_as_they_are_anywhere(data: Path) -> None:
    step = Step(
        "a", "bench.quality.answers", (str(data / "support.jsonl"), "--model-url", "http://host/v1", "--x", "a b")
    )

    assert step.shown(data, "http://host/v1") == (
        "python -m bench.quality.answers DATA/support.jsonl --model-url URL --x 'a b'"
    )
    assert str(data) in step.shown(None, "")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of two steps, the second of which fails."""
    flags = ("--planted", "1", "--messages", "20", "--facts", "1", "--policies", "tail", "--model", "none")
    made = [Step("planted", "bench.quality", flags, kept=True), Step("other", "bench.quality", ("--every", "0"), None)]
    monkeypatch.setattr(suite, "steps", lambda *given, full: iter(made))


@pytest.mark.usefixtures("small")
def test_steps_leave_what_they_found_and_are_not_made_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"

    first = CliRunner().invoke(app, ["--out", str(out)])
    again = CliRunner().invoke(app, ["--out", str(out), "--resume", "--only", "planted"])

    assert "other: failed with exit code 2" in first.output
    assert "planted: evidence kept" in first.output
    assert (first.exit_code, again.exit_code) == (1, 0)
    assert {path.name for path in out.iterdir()} >= {"planted.txt", "planted.json", "planted.jsonl", "planted.done"}
    assert not (out / "other.done").exists()
    assert (out / "planted.md").read_text().startswith("**planted: evidence kept")
    assert (out / "planted.command").read_text().startswith("python -m bench.quality --planted 1")
    assert "planted: done before" in again.output


@pytest.mark.usefixtures("small")
def test_a_stop_ends_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "run", lambda step, out, *, resume: STOPPED)

    result = CliRunner().invoke(app, ["--out", str(tmp_path / "out")])

    assert "stopped in planted: --resume goes on" in result.output
    assert not (tmp_path / "out" / "planted.done").exists()


def test_a_name_that_no_step_has_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "out"), "--only", "bogus"])

    assert result.exit_code == 2
    assert "bogus" in result.output
