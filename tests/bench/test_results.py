import json
from pathlib import Path

import pytest

from bench.results import STOPPED, Results, code, fingerprint

KEY = {"measure": "m", "way": "hybrid", "budgets": (0.1, 0.5)}


def test_what_was_measured_is_there_after_a_stop(tmp_path: Path) -> None:
    Results(tmp_path / "r.jsonl").put(KEY, {"kept": 1})

    again = Results(tmp_path / "r.jsonl", resume=True)

    assert KEY in again
    assert again.get(KEY) == {"kept": 1}
    assert {**KEY, "way": "fifo"} not in again


def test_a_run_that_is_not_resumed_begins_anew(tmp_path: Path) -> None:
    Results(tmp_path / "r.jsonl").put(KEY, 1)

    assert KEY not in Results(tmp_path / "r.jsonl")
    assert (tmp_path / "r.jsonl").read_text() == ""


def test_what_other_source_has_measured_is_measured_anew(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({"key": KEY, "code": "other", "found": 1}) + "\n")

    assert KEY not in Results(tmp_path / "r.jsonl", resume=True)


def test_a_line_that_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    whole = json.dumps({"key": {"way": "a"}, "code": code(), "found": 1}) + "\n"
    (tmp_path / "r.jsonl").write_text(whole + '{"key": {"way"')

    again = Results(tmp_path / "r.jsonl", resume=True)
    again.put(KEY, 2)

    assert [json.loads(line)["found"] for line in (tmp_path / "r.jsonl").read_text().splitlines()] == [1, 2]


@pytest.mark.parametrize("line", ["{", "[]", '{"found": 1}'])
def test_a_file_of_something_else_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.jsonl").write_text(line + "\n")

    with pytest.raises(ValueError, match=r"r\.jsonl, line 1: no measurement"):
        Results(tmp_path / "r.jsonl", resume=True)


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped, Results(tmp_path / "r.jsonl").stoppable():
        raise KeyboardInterrupt

    assert stopped.value.code == STOPPED
    assert f"--resume goes on from {tmp_path / 'r.jsonl'}" in capsys.readouterr().out


def test_other_data_has_another_fingerprint() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 1})
