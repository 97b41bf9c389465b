"""Several processes write to one file or one pipe: every line arrives once, whole."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from proxy.audit.sinks import FileSink, StreamSink

ROOT = Path(__file__).parents[3]
LINES = 1000

WRITER = """
import json, sys
from proxy.audit.sinks import FileSink, StreamSink
name, path = sys.argv[1:3]
most, backups, longest, lines = map(int, sys.argv[3:])
sink = StreamSink(sys.stdout) if path == "-" else FileSink(path, max_bytes=most, backups=backups)
print("ready", file=sys.stderr, flush=True)
sys.stdin.read()
for number in range(lines):
    assert sink.write([json.dumps({"who": name, "number": number, "text": name * (number * 97 % longest)}).encode()])
sink.close()
"""


def writers(
    names: str, path: Path | str, *, max_bytes: int, backups: int, longest: int, out: int
) -> list[subprocess.Popen[bytes]]:
    """A process for each letter of `names`, all let go at the same time."""
    common = [str(path), str(max_bytes), str(backups), str(longest), str(LINES)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name, *common],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for name in names
    ]
    for each in started:
        assert each.stderr is not None
        assert each.stderr.readline() == b"ready\n"
        each.stderr.close()
    for each in started:
        assert each.stdin is not None
        each.stdin.close()
    return started


def check(lines: Sequence[str], names: str) -> None:
    """Each writer's lines are there, once, whole, and in the order in which it wrote them."""
    records = [json.loads(line) for line in lines]
    assert all(set(record["text"]) <= {record["who"]} for record in records)
    for name in names:
        assert [record["number"] for record in records if record["who"] == name] == list(range(LINES))


def rotated(path: Path) -> list[Path]:
    """A file's generations, oldest first."""
    older = sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: -int(each.suffix[1:]))
    return [*older, path]


def test_a_file_that_several_processes_rotate_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    for each in writers("abcd", path, max_bytes=20_000, backups=10_000, longest=400, out=subprocess.DEVNULL):
        assert each.wait(60) == 0

    files = rotated(path)
    assert len(files) > 5
    assert all(file.stat().st_size <= 20_000 for file in files)
    check([line for file in files for line in file.read_text().splitlines()], "abcd")


def test_what_the_operator_moves_away_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.jsonl", []
    running = writers("abc", path, max_bytes=0, backups=0, longest=400, out=subprocess.DEVNULL)

    while any(each.poll() is None for each in running):
        if path.exists() and path.stat().st_size > 5000:
            moved.append(tmp_path / f"moved.{len(moved)}")
            path.rename(moved[-1])
    assert [each.returncode for each in running] == [0, 0, 0]

    assert moved
    check([line for file in (*moved, path) if file.exists() for line in file.read_text().splitlines()], "abc")


def test_long_lines_of_several_processes_do_not_mix_in_a_pipe() -> None:
    reading, writing = os.pipe()
    running = writers("abc", "-", max_bytes=0, backups=0, longest=30_000, out=writing)
    os.close(writing)

    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()

    assert [each.wait(60) for each in running] == [0, 0, 0]
    assert max(map(len, lines)) > 20_000, "longer than what a pipe takes in one piece"
    check(lines, "abc")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    script = """
import resource, sys
from proxy.audit.sinks import FileSink
sink = FileSink(sys.argv[1], max_bytes=0, backups=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))  # what is written beyond is refused, as on a full disk
lost = 0
for _ in range(5):
    lost += 1 - sink.write([b"x" * 99])
print(lost)
"""
    path = tmp_path / "audit.jsonl"
    run = [sys.executable, "-c", script, str(path)]

    lost = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    assert (int(lost), path.read_text()) == (3, 2 * ("x" * 99 + "\n"))


def test_of_a_lot_that_is_too_large_for_the_disk_what_fits_is_written(tmp_path: Path) -> None:
    script = """
import resource, sys
from proxy.audit.sinks import FileSink
sink = FileSink(sys.argv[1], max_bytes=0, backups=0)
resource.setrlimit(resource.RLIMIT_FSIZE, (250, 250))
print(sink.write([b"a" * 99, b"b" * 200, b"c" * 99, b"d" * 99]))
"""
    path = tmp_path / "audit.jsonl"
    run = [sys.executable, "-c", script, str(path)]

    written = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    assert (int(written), path.read_text()) == (2, "a" * 99 + "\n" + "c" * 99 + "\n")


def test_a_lot_is_rotated_where_each_of_its_lines_would_be(tmp_path: Path) -> None:
    lot, single = (FileSink(tmp_path / name, max_bytes=100, backups=50) for name in ("lot", "single"))
    lines = [b"x" * size for size in (10, 80, 20, 99, 100, 5, 5, 300, 1)]

    assert lot.write(lines) == len(lines)
    for line in lines:
        assert single.write([line]) == 1

    assert [file.read_bytes() for file in rotated(tmp_path / "lot")] == [
        file.read_bytes() for file in rotated(tmp_path / "single")
    ]


def test_a_folder_that_cannot_be_changed_gets_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    sink = FileSink(path, max_bytes=100, backups=2)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "replace", refuse)
    for _ in range(5):
        sink.write([b"x" * 60])
    sink.close()

    assert path.read_text() == 5 * ("x" * 60 + "\n")


@pytest.mark.parametrize(
    ("backups", "kept"),
    [
        (0, ["audit.jsonl"]),
        (1, ["audit.jsonl", "audit.jsonl.1"]),
        (2, ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]),
    ],
    ids=["none", "one", "two"],
)
def test_no_more_old_files_are_kept_than_wanted(tmp_path: Path, backups: int, kept: list[str]) -> None:
    sink = FileSink(tmp_path / "audit.jsonl", max_bytes=100, backups=backups)

    for number in range(20):
        sink.write([b"%060d" % number])
    sink.close()

    assert sorted(file.name for file in tmp_path.iterdir()) == kept
    assert (tmp_path / "audit.jsonl").read_text() == f"{19:060}\n"


def test_a_line_longer_than_a_file_may_be_gets_one_to_itself(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "audit.jsonl", max_bytes=100, backups=5)

    assert sink.write([b"a", b"b" * 500, b"c"]) == 3
    sink.close()

    assert [file.read_text()[:1] for file in rotated(tmp_path / "audit.jsonl")] == ["a", "b", "c"]


def test_two_sinks_of_one_process_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def write(name: str) -> Callable[[], None]:
        def work() -> None:
            sink = FileSink(path, max_bytes=5000, backups=10_000)
            for number in range(LINES):
                sink.write([json.dumps({"who": name, "number": number, "text": name * (number % 50)}).encode()])
            sink.close()

        return work

    threads = [threading.Thread(target=write(name)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    check([line for file in rotated(path) for line in file.read_text().splitlines()], "ab")


def test_a_stream_keeps_what_was_printed_before_in_front() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        stream.write("printed\n")
        assert StreamSink(stream).write([b"audited", b"twice"]) == 2
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "printed\naudited\ntwice\n"
