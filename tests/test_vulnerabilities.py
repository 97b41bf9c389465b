"""What `make audit` asks of its tool, and what it makes of the answer: here of a script that says what it is to say."""

import sys
from pathlib import Path

import pytest

from tools import audit

HASH = "--hash=sha256:"


def locked(*pins: str) -> str:
    return "".join(f"{pin} \\\n    {HASH}{'0' * 8} \\\n    {HASH}{'1' * 8}\n" for pin in pins)


def test_pins_of_every_system_are_looked_at_once_each() -> None:
    texts = [locked("colorama==0.4.6 ; sys_platform == 'win32'", "a==1", "Both==2"), locked("both==2", "a==1")]

    (requirements,) = audit.pins(texts)

    assert [each.split()[0] for each in requirements] == ["colorama==0.4.6", "a==1", "both==2"]
    assert all(each.count(HASH) == 2 and ";" not in each for each in requirements)


def test_two_versions_of_a_package_are_looked_at_one_after_the_other() -> None:
    texts = [locked("a==1 ; python_version < '3.12'", "a==2 ; python_version >= '3.12'", "b==1")]

    assert [[each.split()[0] for each in part] for part in audit.pins(texts)] == [["a==1", "b==1"], ["a==2"]]


def test_pins_without_hashes_are_looked_at_too() -> None:
    assert list(audit.pins(["# why\ntorch==2.13.0\n", "uv==0.13.9\n"])) == [["torch==2.13.0", "uv==0.13.9"]]


def test_no_pin_of_a_lock_is_left_out() -> None:
    for file in (*audit.HASHED, *audit.UNHASHED):
        text = file.read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert sum(map(len, audit.pins([text]))) == len(lines) > 0, file.name


@pytest.mark.parametrize(
    ("status", "stderr", "ends", "said"),
    [
        (0, "No known vulnerabilities found", 0, "none with a known vulnerability"),
        (1, "Found 1 known vulnerability in 1 package", 1, "explain it in tools/audit.py"),
        (1, "Found 3 known vulnerabilities, ignored 1 in 2 packages", 1, "explain it in tools/audit.py"),
        (1, "ERROR: a: Dependency not found on PyPI and could not be audited", 2, "a: Dependency not found"),
        (1, "Traceback\nConnectionError: Failed to resolve", 2, "nothing is known: ConnectionError"),
        (2, "error: argument -s: invalid value", 2, "AUDIT_ARGS"),
        (1, "", 2, "it says nothing"),
    ],
    ids=["clean", "one", "several", "unknown-pin", "unreachable", "option", "silent"],
)
def test_only_an_answer_for_every_pin_is_a_clean_audit(
    status: int,
    stderr: str,
    ends: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "pip-audit"
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.stderr.write({stderr!r})\nsys.exit({status})\n")
    script.chmod(0o755)
    monkeypatch.setattr(audit, "PIP_AUDIT", script)

    assert audit.main([]) == ends
    told = capfd.readouterr()
    assert said in told.out + told.err
