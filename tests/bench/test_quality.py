import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.data import Conversation
from bench.facts import probes
from bench.quality.__main__ import app, spread
from bench.quality.tally import Tally
from bench.views import bench_route, view
from bench.ways import OWN, Sent, ways
from policies.errors import PolicyError
from policies.registry import create

FACT = "The spare key is under the blue flower pot behind the shed."
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Good evening!"},
    {"role": "assistant", "content": "Good evening to you."},
    {"role": "user", "content": FACT},
    {"role": "assistant", "content": "Noted."},
    *(
        {"role": role, "content": f"Chapter {i} of the novel was longer than the one before it, said reader {i}."}
        for i in range(20)
        for role in ("user", "assistant")
    ),
]
RECORD = {
    "id": "talk",
    "messages": CHAT,
    "qas": [
        {"question": "Where is the spare key?", "evidence": [3], "category": "place"},
        {"question": "What colour is the flower pot?", "evidence": [3, 4], "evidence_mode": "any"},
        {"question": "Who won?", "evidence": [], "unanswerable": True},
    ],
}


def conversation(record: dict[str, Any]) -> Conversation:
    request = record.get("request") or {"messages": record["messages"]}
    return Conversation(record["id"], {"model": "gpt-4o", **request}, record)


def test_each_answerable_question_is_appended_as_the_last_user_message() -> None:
    one, other = probes(conversation(RECORD))

    assert one.request["messages"][-1] == {"role": "user", "content": "Where is the spare key?"}
    assert one.facts == (frozenset({3}),)
    assert other.facts == (frozenset({3, 4}),)


def test_calls_that_use_earlier_values_are_probed_where_they_are_made() -> None:
    deps = [{"at": 10, "sources": [3]}, {"at": 10, "sources": [5, 6]}, {"at": 20, "sources": [3]}]

    first, second = probes(conversation({"id": "agent-1", "request": {"messages": CHAT}, "deps": deps}))

    assert len(first.request["messages"]) == 10
    assert first.facts == (frozenset({3}), frozenset({5, 6}))
    assert (first.weight, second.weight) == (2, 1)


@pytest.mark.parametrize(
    ("way", "kept"), [("identity", True), ("tail", False), ("oracle", True), ("lexical", True), ("fifo", False)]
)
def test_evidence_is_kept_by_those_who_can_know_it(way: str, kept: bool) -> None:
    probe = next(probes(conversation(RECORD)))
    seen = view(probe, bench_route(create("fifo")))
    target = seen.window.used // 4

    (sent,) = ways([way], None)[way](seen, [target])

    assert (3 in sent.kept) is kept
    assert way == "identity" or sent.tokens <= target
    assert {0, len(CHAT)} <= sent.kept


def test_unknown_ways_are_refused() -> None:
    with pytest.raises(PolicyError, match="newest"):
        ways(["newest"], None)


def test_a_tally_weighs_facts() -> None:
    tally = Tally()
    one, _ = probes(conversation(RECORD))

    tally.add(one, Sent(frozenset({3}), 10, 0.001), 20)
    tally.add(one, Sent(frozenset({2}), 30, 0.003), 20)

    assert tally.figures() == {"kept": 50.0, "over": 50.0, "tokens": 20, "ms": 2.0, "categories": {"place": 50.0}}


def test_the_command_prints_a_table_and_writes_figures(tmp_path: Path) -> None:
    file, out = tmp_path / "talk.jsonl", tmp_path / "out.json"
    file.write_text(json.dumps(RECORD) + "\n")
    policies = ",".join(name for name in OWN if name != "relevance")

    result = CliRunner().invoke(app, [str(file), "--model", "none", "--policies", policies, "--json", str(out)])

    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())["talk"]
    assert figures["oracle"]["0.25"]["kept"] == 100
    assert figures["lexical"]["0.25"]["kept"] == 100
    assert figures["tail"]["0.25"]["kept"] == 0


def test_planted_facts_need_no_data(tmp_path: Path) -> None:
    arguments = [
        "--planted",
        "1",
        "--messages",
        "60",
        "--facts",
        "4",
        "--replay",
        "--budgets",
        "0.3",
        "--model",
        "none",
    ]

    result = CliRunner().invoke(app, [*arguments, "--policies", "newest,oracle", "--json", str(tmp_path / "out")])

    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "out").read_text())["planted"]
    assert figures["newest"]["0.3"]["kept"] == 0
    assert figures["oracle"]["0.3"]["kept"] == 100


@pytest.mark.parametrize(("count", "taken"), [(0, "01234567"), (1, "0"), (3, "025"), (8, "01234567"), (9, "01234567")])
def test_a_sample_is_spread_over_a_file(count: int, taken: str) -> None:
    recorded = [conversation({"id": str(i), "messages": CHAT}) for i in range(8)]

    assert "".join(each.id for each in spread(recorded, count)) == taken


def test_without_conversations_it_says_what_would_do() -> None:
    result = CliRunner().invoke(app, ["--model", "none"])

    assert result.exit_code == 2
    assert "give a FILE, or --planted" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("replay", [False, True])
def test_a_run_that_is_resumed_measures_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replay: bool
) -> None:
    file, results = tmp_path / "talk.jsonl", tmp_path / "results.jsonl"
    file.write_text(json.dumps(RECORD) + "\n")
    arguments = [str(file), "--model", "none", "--budgets", "0.3", "--results", str(results)]
    arguments += ["--replay"] if replay else []
    more = [*arguments, "--resume", "--markdown", str(tmp_path / "tables.md"), "--json", str(tmp_path / "out.json")]

    assert CliRunner().invoke(app, [*arguments, "--policies", "tail"]).exit_code == 0
    second = CliRunner().invoke(app, [*more, "--policies", "tail,fifo"])

    assert second.exit_code == 0, second.output
    keys = [json.loads(line)["key"]["way"] for line in results.read_text().splitlines()]
    assert keys == ["tail", "fifo"]
    assert set(json.loads((tmp_path / "out.json").read_text())["talk"]) == {"tail", "fifo"}
    assert (tmp_path / "tables.md").read_text().startswith("**talk: evidence kept in %, 2 requests")
    assert "| tail | " in (tmp_path / "tables.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(["--vectors", "warm"], "some of waited, prepared, cold", id="state"),
        pytest.param(["--resume"], "needs --results", id="resume"),
        pytest.param(["--policies", "newest"], 'unknown policy "newest"', id="policy"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, arguments: list[str], problem: str) -> None:
    (file := tmp_path / "talk.jsonl").write_text(json.dumps(RECORD) + "\n")

    result = CliRunner().invoke(app, [str(file), "--model", "none", *arguments])

    assert result.exit_code == 2
    assert problem in " ".join(result.output.replace("│", " ").split())  # as in one line


@pytest.mark.parametrize("budgets", ["", "0", "1.5", "a"])
def test_budgets_that_are_no_shares_are_refused(tmp_path: Path, budgets: str) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps(RECORD) + "\n")

    result = CliRunner().invoke(app, [str(file), "--model", "none", "--budgets", budgets])

    assert result.exit_code == 2
    assert "--budgets" in result.output
