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
    {
        "role": "assistant",
        "content": "Noted.",
    },
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
    assert sent.bounded is (way != "identity")
    assert not sent.bounded or sent.tokens <= target
    assert {0, len(CHAT)} <= sent.kept


def test_unknown_ways_are_refused() -> None:
    with pytest.raises(PolicyError, match="newest"):
        ways(["newest"], None)


@pytest.mark.parametrize(
    ("sent", "kept", "over"),
    [
        pytest.param(Sent(frozenset({3}), 10), 100.0, 0.0, id="fits"),
        pytest.param(Sent(frozenset({2}), 10), 0.0, 0.0, id="lost"),
        pytest.param(Sent(frozenset({3}), 21), 0.0, 100.0, id="over"),
        pytest.param(Sent(frozenset({3}), 21, bounded=False), 100.0, 100.0, id="not-bounded"),
    ],
)
def test_what_does_not_fit_keeps_nothing(sent: Sent, kept: float, over: float) -> None:
    tally = Tally()
    one, _ = probes(conversation(RECORD))

    tally.add(one, sent, 20, least=20)

    figures = tally.figures()
    assert (figures["kept"], figures["over"], figures["requests"]) == (kept, over, 1)


def test_a_tally_weighs_facts_and_leaves_out_what_cannot_fit() -> None:
    tally, more = Tally(), Tally()
    one, _ = probes(conversation(RECORD))

    tally.add(one, Sent(frozenset({3}), 10, 0.001), 20)
    tally.add(one, Sent(frozenset({3}), 30, 0.003), 20)
    more.add(one, Sent(frozenset({3}), 30, 0.003), 20, least=21)
    tally.merge(more.sums())

    assert tally.figures() == {
        "kept": 50.0,
        "over": 50.0,
        "requests": 2,
        "cannot_fit": 1,
        "tokens": 20,
        "ms": 2.0,
        "categories": {"place": 50.0},
    }
    assert more.figures()["kept"] is None


@pytest.mark.parametrize(
    ("left", "kept"), [("Order #W81 of May\n[… 90 characters left out here …]", 100.0), ("Nothing of it", 0.0)]
)
def test_a_value_counts_where_it_is_left_of_a_message_that_was_cut(left: str, kept: float) -> None:
    tally = Tally()
    deps = [{"at": 10, "sources": [3], "value": "#W81"}]
    [probe] = probes(conversation({"id": "agent-1", "request": {"messages": CHAT}, "deps": deps}))
    body = json.dumps({"messages": [{"role": "system", "content": "Not #W81"}, {"role": "user", "content": left}]})

    tally.add(probe, Sent(frozenset({0}), 10, body=body.encode()), 20)

    assert tally.figures()["kept"] == kept


TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds a file. " * 60, "parameters": {}}}]


@pytest.mark.parametrize(("tools", "words"), [([], 30), (TOOLS, 30), ([], 2_000)], ids=["plain", "schemas", "results"])
def test_an_oracle_fits_whatever_can_fit_and_nothing_else_can(tools: list[Any], words: int) -> None:
    """A protected result may be cut, so that what is said to be the least is what the pipeline comes down to."""
    calls = [{"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}]
    loop = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "found in box seven " * (words // 4)},
    ]
    messages = [*CHAT, {"role": "user", "content": "Find it."}, *loop * 4]
    deps = [{"at": len(messages), "sources": [3], "value": FACT}]
    record = {"id": "a", "request": {"messages": messages, "tools": tools}, "deps": deps}
    [probe] = probes(conversation(record))
    seen = view(probe, bench_route(create("fifo")))
    least = seen.bounds(seen.window.used // 2).least
    chosen = ways(["oracle", "fifo"], None)

    for target in (least, least - 1):
        fits = seen.bounds(target).least <= target
        assert fits is (target == least)
        (known,), (sent,) = chosen["oracle"](seen, [target]), chosen["fifo"](seen, [target])
        assert (known.tokens <= target) is fits
        assert (sent.tokens <= target) is fits


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
