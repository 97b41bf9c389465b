"""The server's log: lines of JSON for machines, words for people, and libraries' records among them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from proxy import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """The loggers as they were: they are the process's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO, form: str | None = None, level: str = "info") -> list[str]:
    """What is in the log after an event, one of no weight, and a library's warning with a traceback."""
    logs.set_up(form, level, stream)
    log = structlog.get_logger("trimtab")
    log.info("listening", address="http://127.0.0.1:8080")
    log.debug("details")
    logging.getLogger("library").info("about itself")
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("library").warning("it failed %d times", 3, exc_info=True)
    return stream.getvalue().splitlines()


def test_machines_get_one_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = map(json.loads, written(io.StringIO()))

    assert list(first) == ["timestamp", "level", "event", "address"]
    assert (first["level"], first["event"]) == ("info", "listening")
    assert first["timestamp"].endswith("Z")
    assert (second["level"], second["event"], second["logger"]) == ("warning", "it failed 3 times", "library")
    assert "ValueError: no" in second["exception"]


def test_people_at_a_terminal_get_words() -> None:
    lines = written(Terminal())

    assert "listening" in lines[0]
    assert "http://127.0.0.1:8080" in lines[0]
    assert "\x1b[" in lines[0], "in colour"
    assert "it failed 3 times" in lines[1]
    assert lines[-1].endswith("ValueError: no") or any("ValueError" in line for line in lines)


@pytest.mark.parametrize(
    ("stream", "form", "is_json"),
    [(Terminal(), "json", True), (io.StringIO(), "console", False)],
    ids=["json on a terminal", "console in a file"],
)
def test_the_setting_decides_where_there_is_one(stream: io.StringIO, form: str, is_json: bool) -> None:
    first, *_ = written(stream, form)

    assert first.startswith("{") is is_json
    assert "\x1b[" not in first


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["listening", "details", "it failed 3 times"]),
        ("info", ["listening", "it failed 3 times"]),
        ("error", []),
    ],
)
def test_the_level_is_for_all(level: str, events: list[str]) -> None:
    assert [json.loads(line)["event"] for line in written(io.StringIO(), level=level)] == events
