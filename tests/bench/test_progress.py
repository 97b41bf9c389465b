from pathlib import Path

import pytest

from bench.progress import TOLD, bar, told


def test_a_process_tells_how_far_it_is_where_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress"
    monkeypatch.setenv(TOLD, str(path))

    assert told(path) is None
    with bar("slices", 3) as advance:
        assert told(path) == ("slices", 0, 3)
        advance()
        advance(2)

    assert told(path) == ("slices", 3, 3)


@pytest.mark.parametrize("content", ["", "{", '["a"]'])
def test_what_is_half_written_is_not_taken_for_progress(tmp_path: Path, content: str) -> None:
    (path := tmp_path / "progress").write_text(content)

    assert told(path) is None


def test_without_a_file_a_bar_is_drawn_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TOLD, raising=False)

    with bar("slices", 2) as advance:
        advance(2)

    assert capsys.readouterr().out == ""
