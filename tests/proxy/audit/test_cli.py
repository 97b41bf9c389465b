"""`trimtab audit` and `trimtab report`: what a person is told who has nothing but an id, or a period."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.audit.store import AuditStore
from proxy.cli import app
from proxy.errors import ConfigError
from tests.proxy.records import NOW, record, refusal


def filled(tmp_path: Path, *records: dict[str, object]) -> str:
    path = tmp_path / "audit.db"
    store = AuditStore(path, now=lambda: NOW)
    store.open()
    for each in records:
        store.put(each)
    store.close()
    return str(path)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_decisions_are_listed_the_newest_last(tmp_path: Path) -> None:
    path = filled(tmp_path, record(1), refusal(), record(2, tokens_before=None, action="pass"), record(3))

    head, first, second, third, fourth = run("audit", "--store", path).splitlines()

    assert head.split()[:3] == ["time", "(UTC)", "audit"]
    assert "trimmed" in first
    assert "3100→2100" in first
    assert "refused" in second
    assert "not counted" in third
    assert fourth.split()[2] == f"{3:016x}"
    assert len(run("audit", "--store", path, "-n", "2").splitlines()) == 3
    assert json.loads(run("audit", "--store", path, "--json", "--action", "pass"))["audit_id"] == f"{2:016x}"


def test_one_decision_is_explained_to_who_has_only_its_id(tmp_path: Path) -> None:
    path = filled(tmp_path, record(0xABC))

    told = run("audit", "--store", path, "show", f"{0xABC:016x}")

    for words in (
        *("window 4,000 − reserve 1,000 → 3,000 tokens", "3,100 tokens, 103% of the budget", "1,000 less"),
        *("by priority, down to 2,100 tokens", "140 leading tokens as in the request before; 900 lost"),
        *("1–2", "evicted", "12.5", "lowest score", "kept", "pinned", "5 more slots", "pin.text", "thresholds"),
    ):
        assert words in told, words


def test_slots_that_are_not_listed_are_summed(tmp_path: Path) -> None:
    unlisted = [{"action": "evict", "role": "tool", "slots": 99_000, "tokens": 500_000}]
    path = filled(tmp_path, record(1, slots_unlisted=unlisted, slots_total=99_500))

    shown = " ".join(run("audit", "--store", path, "show", f"{1:016x}").split())
    assert "99000 more tool slots were evicted: 500000 tokens." in shown


def test_what_was_out_before_is_told_decision_by_decision(tmp_path: Path) -> None:
    later = record(3, trigger=None, slots=[], replayed={"slots": 2, "audit_id": f"{2:016x}"})
    second = record(2, policy="fifo", replayed={"slots": 1, "audit_id": f"{1:016x}"})
    second["slots"] = [{"index": 4, "messages": [7, 8, 9, 11], "tokens": 50, "action": "summarize"}]
    forgotten = record(1, replayed={"slots": 1, "audit_id": "gone"})
    path = filled(tmp_path, forgotten, second, later)

    told = [line.split() for line in run("audit", "--store", path, "show", f"{3:016x}").splitlines()]

    start = told.index(["Out", "already"])
    assert told[start + 2][:5] == ["7–9,", "11", "50", "normal", "fifo"]
    assert told[start + 3][:4] == ["1–2", "1,000", "normal", "priority"]
    assert told[start + 4] == ["no", "longer", "kept", "gone"]


def test_what_a_client_sent_does_not_reach_the_terminal_as_control(tmp_path: Path) -> None:
    path = filled(tmp_path, record(1, model="\x1b]0;owned\x07\u202egpt", route="[red]a[/red]"))

    told = run("audit", "--store", path) + run("audit", "--store", path, "show", f"{1:016x}")

    assert not {"\x1b", "\x07", "\u202e"} & set(told)
    assert "[red]a[/red]" in told


@pytest.mark.parametrize(
    ("id_", "why"), [("nothing", "not there"), ("0000", "several begin so")], ids=["unknown", "ambiguous"]
)
def test_an_id_that_names_no_record_is_told(tmp_path: Path, id_: str, why: str) -> None:
    path = filled(tmp_path, record(1), record(2))
    result = CliRunner().invoke(app, ["audit", "--store", path, "show", id_])

    assert result.exit_code == 2
    assert why in result.stderr


def test_a_period_is_summed_by_policy(tmp_path: Path) -> None:
    path = filled(tmp_path, record(1), record(2, policy="fifo"), record(3, policy="fifo"))

    told = run("report", "--store", path, "--by", "policy")
    rows = {line[:31].strip(): line[31:].split() for line in told.splitlines()}

    assert told.splitlines()[0].split() == ["policy", "fifo", "priority"]
    assert any(words[-2:] == ["2", "1"] for name, words in rows.items() if name.startswith("requests"))
    assert "2,000 (32%)" in told
    assert [each["name"] for each in json.loads(run("report", "--store", path, "--by", "route", "--json"))] == ["main"]


def test_a_period_without_decisions_says_so(tmp_path: Path) -> None:
    path = filled(tmp_path, record(1, age_s=NOW))

    assert "no decisions" in run("report", "--store", path, "--since", "1h")


def test_a_list_goes_on_with_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = AuditStore(tmp_path / "audit.db", now=lambda: NOW)
    store.open()
    store.put(record(1))
    store.flush()
    naps = []

    def nap(_: float) -> None:
        naps.append(1)
        if len(naps) == 3:
            raise KeyboardInterrupt
        store.put(record(10 + len(naps)))
        store.flush()

    monkeypatch.setattr(time, "sleep", nap)

    listed = run("audit", "--store", str(store.path), "-f").splitlines()[1:]

    assert [int(line.split()[2], 16) for line in listed] == [1, 11, 12]
    store.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["audit"], "audit.store: memory:// keeps them in the memory of the proxy; set it to a file"),
        (["audit", "--store", "missing.db"], "missing.db: no such file"),
        (["report", "--by", "colour"], "--by: must be one of route, policy, model, mode, got 'colour'"),
        (["report", "--since", "yesterday"], "--since: must be a number with s, m, h or d"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_with_what_would_do(arguments: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)

    assert told in str(caught.value)


def test_the_store_of_the_configuration_is_found(tmp_path: Path) -> None:
    path = filled(tmp_path, record(1))
    config = tmp_path / "config.yaml"
    config.write_text(f"audit: {{store: 'sqlite:///{path}'}}")

    assert f"{1:016x}" in run("audit", "--config", str(config))


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    path.write_text("words " * 1000)
    result = CliRunner().invoke(app, ["audit", "--store", str(path)])

    assert result.exit_code == 4
    assert "cannot be read as an audit store" in result.stderr


RULES = {
    "thresholds": {"evict": 0.85, "emergency": 0.95},
    "targets": {"evict": 0.7, "emergency": 0.6},
    "breathing_turns": 16,
    "keep_prefix": 0.3,
    "protect_last": 4,
    "on_overflow": "truncate",
}


def test_who_has_only_an_id_learns_what_stayed_why_and_what_would_let_it_go(tmp_path: Path) -> None:
    prefix = "protected: the oldest, kept for the provider's cache (keep_prefix: 30% of the budget, 900 tokens at most)"
    cut = record(1, rules=RULES, target=1500)
    cut["slots"] += [
        {"index": 2, "messages": [3], "role": "user", "tokens": 400, "action": "keep", "reason": prefix},
        {"index": 3, "messages": [4], "role": "user", "tokens": 300, "action": "keep", "reason": prefix},
    ]
    path = filled(tmp_path, cut)

    told = " ".join(run("audit", "--store", path, "show", f"{1:016x}").split())

    for words in (
        prefix,
        "thresholds.evict 85% of 3,000 = 2,550 tokens",
        "targets.evict 70% of 3,000 = 2,100 tokens, lowered to 1,500 so that the next cut does not come within",
        "keep_prefix kept 700 tokens here. Set it to 0 to let the oldest go first",
    ):
        assert words in told, words
    assert "protect_last kept" not in told


def test_slots_that_stayed_for_the_same_reason_are_one_line(tmp_path: Path) -> None:
    cut = record(1)
    cut["slots"] = [
        {"index": n, "messages": [n], "role": role, "tokens": 10, "action": "keep", "reason": why}
        for n, (role, why) in enumerate(
            [("user", "a"), ("assistant", "a"), ("user", "a"), ("user", "b"), ("user", "b")]
        )
    ]
    path = filled(tmp_path, cut)

    rows = [line.split() for line in run("audit", "--store", path, "show", f"{1:016x}").splitlines()]

    assert ["0–2", "3", "slots", "30", "kept", "a"] in rows
    assert ["3–4", "user", "20", "kept", "b"] in rows
