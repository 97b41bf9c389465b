import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.quality.charts import app


def write(folder: Path, name: str, figures: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(figures))


def kept(*shares: float) -> dict[str, Any]:
    return {f"{share:g}": {"kept": 100 * share} for share in shares}


def test_what_was_measured_is_drawn_and_what_was_not_is_said(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra bench is not installed")
    write(tmp_path, "evidence-locomo", {"locomo": {"tail": kept(0.1, 0.5), "hybrid": kept(0.1, 0.5)}})
    write(tmp_path, "decide", {"hybrid": {"40": {"warm": {"median": 1.0, "p99": 2.0}}}})

    result = CliRunner().invoke(app, [str(tmp_path), "--into", str(tmp_path / "images")])

    assert result.exit_code == 0, result.output
    images = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert images.keys() == {"budget.png", "latency.png"}
    assert all(image.startswith(b"\x89PNG") and len(image) < 60_000 for image in images.values())
    assert "cache.png is left out: no figures of replayed and cache" in result.output


def test_a_point_stands_for_a_policy_that_both_have_measured(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="the extra bench is not installed").Figure()
    from bench.quality.charts import cache

    axes = figure.subplots()
    cache(
        axes,
        {"data": "talk", "rows": {"fifo": kept(0.25), "hybrid": kept(0.25), "lru": kept(0.5)}},
        {"policy: fifo": {"hit": 0.8}, "policy: lru": {"hit": 0.7}, "default settings": {"hit": 0.5}},
    )

    assert [line.get_xydata().tolist() for line in axes.get_lines()] == [[[80.0, 25.0]]]
    assert [text.get_text() for text in axes.texts] == ["fifo"]


def test_without_matplotlib_it_says_what_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write(tmp_path, "decide", {"hybrid": {"40": {"warm": {"median": 1.0, "p99": 2.0}}}})

    result = CliRunner().invoke(app, [str(tmp_path), "--into", str(tmp_path)])

    assert result.exit_code == 1
    assert "pip install 'trimtab[bench]'" in result.output
