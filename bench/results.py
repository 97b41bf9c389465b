"""Measurements kept as they are made, one JSON line each, so that a long run can be stopped and gone on with.

A line is `{"key": {...}, "code": "...", "found": ...}`: what was measured, by which source, and what came out. What
other source has measured is measured anew.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STOPPED = 130  # the exit code of what was interrupted


class Results:
    """Measurements by what was measured; without a path they are kept until the end of the run alone.

    With `resume` those of an earlier run count, else `path` is begun anew. A last line that was cut off is forgotten.

    Raises ValueError where a line of `path` is none of these.
    """

    def __init__(self, path: Path | None = None, *, resume: bool = False) -> None:
        self._path = path
        self._found: dict[str, Any] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume or not path.exists():
            path.write_bytes(b"")
            return
        whole = path.read_bytes()
        lines = whole[: whole.rfind(b"\n") + 1]
        if lines != whole:
            path.write_bytes(lines)
        for number, line in enumerate(lines.splitlines(), 1):
            try:
                entry = json.loads(line)
                if entry["code"] == code():
                    self._found[_name(entry["key"])] = entry["found"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path}, line {number}: no measurement; give --results another file") from None

    def __contains__(self, key: Mapping[str, Any]) -> bool:
        return _name(key) in self._found

    def get(self, key: Mapping[str, Any]) -> Any:
        """What came out. Raises KeyError where it was not measured."""
        return self._found[_name(key)]

    def put(self, key: Mapping[str, Any], found: Any) -> None:
        """Keep a measurement; `found` is what JSON can hold."""
        self._found[_name(key)] = found
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"key": key, "code": code(), "found": found}, ensure_ascii=False) + "\n")

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Say, where the block is interrupted, how to go on. Raises SystemExit then."""
        try:
            yield
        except KeyboardInterrupt:
            hint = "without --results nothing is kept" if self._path is None else f"--resume goes on from {self._path}"
            print(f"\nstopped: {hint}")
            raise SystemExit(STOPPED) from None


@cache
def code() -> str:
    """A digest of the source that measures and of what is measured."""
    made = blake2b(digest_size=8)
    for package in ("policies", "proxy", "bench"):
        for path in sorted((ROOT / package).rglob("*.py")):
            made.update(path.read_bytes())
    return made.hexdigest()


def fingerprint(record: Any) -> str:
    """A digest of recorded data, so that a measurement of other data is not taken for one of these."""
    return blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=8).hexdigest()


def _name(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True, ensure_ascii=False)
