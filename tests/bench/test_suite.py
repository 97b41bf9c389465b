import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import suite
from bench.results import STOPPED
from bench.steps import Step
from bench.suite import app, chosen

ROOT = Path(__file__).parents[2]
DIALOGUES = ("--messages", "20", "--facts", "1", "--policies", "tail", "--model", "none")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of three steps, one of which fails."""
    made = [
        Step("planted", "bench.quality", ("--planted", "1", *DIALOGUES), kept=True),
        Step("other", "bench.quality", ("--every", "0"), None),
        Step("timed", "bench.quality", ("--planted", "2", *DIALOGUES), kept=True, alone=True),
    ]
    monkeypatch.setattr(suite, "steps", lambda *given, full, peers: iter(made))


@pytest.mark.usefixtures("small")
def test_steps_leave_what_they_found_and_are_not_made_twice(tmp_path: Path) -> None:
    out = tmp_path / "out"

    first = CliRunner().invoke(app, ["--out", str(out), "--jobs", "2"])
    again = CliRunner().invoke(app, ["--out", str(out), "--resume", "--only", "planted"])

    assert "other: failed with exit code 2" in first.output
    assert "planted: evidence kept" in first.output
    assert (first.exit_code, again.exit_code) == (1, 0)
    assert {path.name for path in out.iterdir()} >= {"planted.txt", "planted.json", "planted.jsonl", "planted.done"}
    assert {path.name for path in out.iterdir()} >= {"timed.json", "timed.done"}
    assert not (out / "other.done").exists()
    assert not [*out.glob("*.progress")]
    assert (out / "planted.md").read_text().startswith("**planted: evidence kept")
    assert (out / "planted.command").read_text().startswith("python -m bench.quality --planted 1")
    assert "planted: done before" in again.output


def test_names_that_no_step_has_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "out"), "--only", "bogus"])

    assert result.exit_code == 2
    assert "bogus" in result.output


def test_steps_are_chosen_by_words_of_their_names() -> None:
    made = [Step(name, "bench.quality", ()) for name in ("evidence-a", "evidence-b", "load", "planted")]

    assert [step.name for step in chosen(made, "evidence,load", "b")] == ["evidence-a", "load"]
    assert [step.name for step in chosen(made, "", "evidence")] == ["load", "planted"]
    assert chosen(made, "", "") == made


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda stop: stop.name)
def test_after_a_stop_it_goes_on_with_what_is_left(tmp_path: Path, stop: signal.Signals) -> None:
    """A real interrupt in the middle of a step: what it had measured is not measured again, and no process is left.

    Interrupts are ignored where it is started, as they are in a shell's background.
    """
    out = tmp_path / "out"
    script = (
        "from bench import suite; from bench.steps import Step\n"
        f"made = [Step('planted', 'bench.quality', ('--planted', '400', *{DIALOGUES!r}, '--replay'), kept=True)]\n"
        "suite.steps = lambda *given, full, peers: iter(made)\n"
        "suite.app()"
    )
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {script}"
    command = [sys.executable, "-c", script, "--out", str(out)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    kept = out / "planted.jsonl"
    until = time.monotonic() + 30
    while not (kept.exists() and kept.stat().st_size) and time.monotonic() < until:
        time.sleep(0.02)
    running.send_signal(stop)
    said, _ = running.communicate(timeout=30)
    measured = kept.read_text().splitlines()

    assert "stopped in planted: --resume goes on" in said
    assert running.returncode == STOPPED
    assert not (out / "planted.done").exists()
    assert 0 < len(measured) < 400

    again = subprocess.Popen([*command, "--resume"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while len(kept.read_text().splitlines()) < len(measured) + 5 and time.monotonic() < until:
        time.sleep(0.02)
    again.send_signal(signal.SIGINT)
    again.wait(30)

    assert kept.read_text().splitlines()[: len(measured)] == measured
    assert len(kept.read_text().splitlines()) > len(measured)
    assert not _alive(str(out)), "a step outlived the suite"


def _alive(word: str) -> list[str]:
    """The processes that have a word in their command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = each.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in command and str(os.getpid()) != each.parent.name:
            found.append(command)
    return found
