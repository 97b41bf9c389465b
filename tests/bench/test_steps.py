import importlib.util
import re
import sys
from pathlib import Path

import pytest

from bench.quality.charts import TITLES
from bench.steps import Sample, Step, steps

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
FIGURE = re.compile(r"\d\s?(?:%|ms\b|µs|MB\b|times\b)|\|\s*\d")
PLACE = re.compile(r"<!-- bench (\S+) -->")


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
    quality = ["evidence-support", "evidence-agents", "replayed-support", "cache"]
    times = ["vectors-support", "vectors-agents", "intent"]
    alone = ["decide", "hot", "load"]

    assert names(None, full=full) == ["planted", *alone]
    assert names(data, full=full) == [*quality, "planted", *times, *alone]
    assert names(data, "http://host/v1", full=full)[:2] == ["answers-planted", "answers-support"]


def test_what_measures_time_comes_last_and_has_the_machine_alone(data: Path) -> None:
    found = [step.alone for step in steps(data, "http://host/v1", "local", full=True, peers=data)]

    assert found == sorted(found)
    assert 0 < sum(found) < len(found)


def test_every_step_is_a_module_of_its_own_output(data: Path) -> None:
    found = [*steps(data, "http://host/v1", "local", full=True, peers=data)]

    assert len({step.name for step in found}) == len(found)
    assert all(importlib.util.find_spec(step.module) for step in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
def test_every_place_of_the_documentation_has_a_step_that_fills_it(page: Path, full: bool, tmp_path: Path) -> None:
    for name in ("locomo", "support", "chinese", "memorybank_en", "agents"):
        (tmp_path / f"{name}.jsonl").touch()
    made = {step.name for step in steps(tmp_path, "http://host/v1", "local", full=full, peers=tmp_path)}
    charts = {f"{name}.png" for name in TITLES}

    places = PLACE.findall(page.read_text(encoding="utf-8"))

    assert places
    assert set(places) <= made | charts


def _paragraphs(page: Path, sections: tuple[str, ...]) -> list[str]:
    """The paragraphs of some sections that are outside of the places that are filled."""
    text = page.read_text(encoding="utf-8")
    parts = [part for part in re.split(r"(?m)^## ", text) if part.startswith(sections)]
    assert len(parts) == len(sections)
    outside = (re.sub(r"(?s)<!-- bench .*?<!-- /bench -->", "", part) for part in parts)
    return [each for part in outside for each in re.split(r"\n{2,}", part)]


def test_every_figure_that_is_not_in_such_a_place_names_its_command() -> None:
    figures = [each for each in _paragraphs(PAGES[0], ("Results", "How fast")) if FIGURE.search(each)]

    assert figures, "how much of the time goes where is told in words"
    assert all("`python -m bench." in each for each in figures), figures


@pytest.mark.parametrize(
    "text", ["takes 3.5 ms", "12 % of it", "a row | 0.5 | 12 |", "150 MB"], ids=["time", "share", "table", "memory"]
)
def test_a_figure_is_known(text: str) -> None:
    assert FIGURE.search(text)


def test_what_can_go_on_is_told_to(tmp_path: Path) -> None:
    kept = Step("a", "bench.quality", ("--planted", "1"), kept=True)
    other = Step("b", "bench.hot", (), None)

    assert "--resume" in kept.command(tmp_path, resume=True)
    assert "--resume" not in kept.command(tmp_path, resume=False)
    assert other.command(tmp_path, resume=True) == [sys.executable, "-m", "bench.hot"]


def test_commands_are_shown_as_they_are_anywhere(data: Path) -> None:
    step = Step(
        "a", "bench.quality.answers", (str(data / "support.jsonl"), "--model-url", "http://host/v1", "/opt/p", "a b")
    )

    assert step.shown(data, "http://host/v1", Path("/opt/p")) == (
        "python -m bench.quality.answers DATA/support.jsonl --model-url URL peers 'a b'"
    )
    assert str(data) in step.shown(None, "")


@pytest.mark.parametrize(
    ("sample", "times", "flags"),
    [
        pytest.param(Sample(), 1, [], id="all"),
        pytest.param(Sample(), 4, ["--every", "4"], id="all, but fewer questions"),
        pytest.param(Sample(3, 5), 2, ["--conversations", "3", "--every", "10"], id="some"),
    ],
)
def test_a_sample_is_what_the_command_takes(sample: Sample, times: int, flags: list[str]) -> None:
    assert sample.flags(times) == flags
