"""Records come out as JSON lines; a slow or broken sink never holds anybody up."""

import io
import json
import threading
from pathlib import Path

import pytest

from proxy import audit
from proxy.audit import Audit, Sinks
from tests.proxy.held import bytes_of


def test_a_record_is_one_json_line_on_stdout_and_in_a_file(tmp_path: Path) -> None:
    stdout = io.StringIO()
    path = tmp_path / "audit.jsonl"
    sink = Audit(Sinks(paths=("-", str(path))), stdout=stdout)
    sink.start()

    sink.put({"event": "decision", "action": "trimmed", "route": "r"})
    sink.put({"event": "decision", "action": "unfit", "route": "zwölf"}, error=True)
    sink.close()

    assert path.read_text(encoding="utf-8") == stdout.getvalue()
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (first["event"], first["action"], first["level"]) == ("decision", "trimmed", "info")
    assert (second["route"], second["level"]) == ("zwölf", "error")
    assert first["time"].endswith("+00:00")
    assert sink.counts.written == 4


def test_files_are_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = Audit(Sinks(paths=(str(path),), max_bytes=2000, backups=2))
    sink.start()

    for number in range(100):
        sink.put({"event": "decision", "number": number})
    sink.close()

    kept = sorted(tmp_path.iterdir())
    assert [file.name for file in kept] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(file.stat().st_size <= 2000 for file in kept)
    assert json.loads(path.read_text().splitlines()[-1])["number"] == 99


class Stuck(io.StringIO):
    """A sink that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait()
        return super().write(text)


def test_a_stuck_sink_blocks_nobody_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "QUEUE", 10)
    stdout = Stuck()
    sink = Audit(Sinks(), stdout=stdout)
    sink.start()

    for number in range(50):
        sink.put({"event": "decision", "number": number})

    assert 39 <= sink.counts.dropped <= 40
    stdout.free.set()
    sink.close()
    assert sink.counts.written + sink.counts.dropped == 50


def test_what_waits_for_a_stuck_sink_takes_so_many_bytes_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "QUEUE_BYTES", 3_000_000)
    stdout = Stuck()
    sink = Audit(Sinks(), stdout=stdout)
    sink.start()
    records: list[dict[str, object]] = []
    for number in range(60):
        slots = [{"index": n, "messages": [n], "action": "evict", "reason": f"the oldest of {n}"} for n in range(300)]
        records.append({"event": "decision", "number": number, "slots": slots})
        sink.put(records[-1])
    taken = bytes_of(records[: sink.held().entries])
    assert taken <= sink.held().bytes <= 3_000_000
    assert 0 < sink.counts.dropped < 50
    before = sink.counts.dropped
    sink.put({"slots": [{"action": "evict", "text": "tide " * 1_000_000}]})
    assert sink.counts.dropped == before + 1

    stdout.free.set()
    sink.close()
    assert (sink.held().entries, sink.held().bytes) == (0, 0)
    assert sink.counts.written + sink.counts.dropped == 61


class Full(io.StringIO):
    """A disk that is full for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True

    def write(self, text: str) -> int:
        if self.full:
            self.full = False
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_failing_sink_is_counted_and_tried_again() -> None:
    stdout = Full()
    sink = Audit(Sinks(), stdout=stdout)
    sink.start()

    sink.put({"event": "decision", "number": 1})
    sink.put({"event": "decision", "number": 2})
    sink.close()

    assert (sink.counts.failed, sink.counts.written) == (1, 1)
    assert json.loads(stdout.getvalue())["number"] == 2


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        Audit(Sinks(paths=(str(tmp_path / "missing" / "audit.jsonl"),))).start()
