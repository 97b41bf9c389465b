import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import cache, data, replaying
from bench.cache import Row, better, defaults, lead, steps, summary
from bench.data import Conversation
from bench.replaying import Call
from proxy.errors import ConfigError
from tests.proxy.dialogues import agent, dialogue


def conversation(messages: list[dict[str, Any]]) -> Conversation:
    return Conversation("c", {"model": "gpt-4o", "messages": messages}, {})


def call(sent: int, cached: int = 0, new: int = 0, window: int = 1000, **fields: Any) -> Call:
    usual = {"least": 0, "cut": False, "problems": (), "task": True, "faults": ()}
    return Call(window=window, sent=sent, cached=cached, new=new, **{**usual, **fields})


def row(name: str, sent: float, efficiency: float) -> Row:
    nothing = dict.fromkeys(
        ("requests", "hit", "cost", "cuts", "over", "cannot_fit", "invalid", "calls", "task", "faults"), 0
    )
    return Row(name=name, sent=sent, efficiency=efficiency, **nothing)


def test_every_prefix_that_asks_for_an_answer_is_a_request() -> None:
    messages = [*dialogue(1), {"role": "assistant", "content": "yes"}]
    results = [{"role": "tool", "tool_call_id": f"call_{i}", "content": "r"} for i in range(2)]

    assert [len(request["messages"]) for request in data.prefixes(conversation(messages))] == [2, 4]
    assert [len(request["messages"]) for request in data.prefixes(conversation([*agent(1), *results]))] == [2, 6]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("{", "line 2: not JSON", id="broken"),
        pytest.param("[]", "line 2: must be an object, got list", id="list"),
        pytest.param('{"id": "x"}', r"line 2: must have messages, .* got keys \['id'\]", id="no messages"),
    ],
)
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str, message: str) -> None:
    (file := tmp_path / "data.jsonl").write_text(json.dumps({"messages": dialogue(1)}) + "\n" + line)

    with pytest.raises(ValueError, match=message):
        list(data.read(file))


async def test_nothing_is_lost_while_everything_fits() -> None:
    calls = await replaying.replay(conversation(dialogue(8)), defaults(), 100_000)

    assert all(call.sent - call.cached == call.new for call in calls)
    assert summary("x", calls, 0.25).efficiency == 1
    assert sum(call.new for call in calls) == calls[-1].sent


async def test_a_cut_loses_what_stands_behind_it() -> None:
    calls = await replaying.replay(conversation(dialogue(30)), steps(0.85, 0.425), 1000)
    cuts = [call for call in calls if call.cut]

    assert cuts
    assert all(call.cached + call.new < call.sent for call in cuts)
    assert all(call.cached + call.new == call.sent for call in calls if not call.cut)


async def test_a_sliding_window_cuts_with_every_request_and_half_window_steps_rarely() -> None:
    told = [(conversation(dialogue(40)), 1000)]
    sliding = await cache.measure("sliding", steps(1.0, 1.0), told, 0.25)
    halves = await cache.measure("halves", steps(0.85, 0.425), told, 0.25)

    assert sliding.cuts > 4 * halves.cuts > 0
    assert sliding.efficiency < halves.efficiency < 1
    assert sliding.sent > halves.sent


async def test_the_default_settings_lose_less_than_half_window_steps_that_send_as_much() -> None:
    told = [(conversation(agent(60, size=size)), 3000) for size in (120, 200)]
    halves = [await cache.measure(str(high), steps(high, high / 2), told, 0.25) for high in (0.7, 0.85, 1.0)]
    own = await cache.measure("default settings", defaults(), told, 0.25)

    assert better(own, halves) == []
    assert (lead(own, halves) or 0) > 0.01
    assert (own.over, own.invalid, own.calls, own.faults, own.task) == (0, 0, 0, 0, 1.0)


def test_the_columns_are_what_they_say() -> None:
    calls = [call(400, new=400), call(600, cached=400, new=200), call(500, cached=100, new=100, cut=True)]
    made = summary("x", calls, 0.25)

    assert (made.requests, made.cuts, made.hit) == (3, 1, pytest.approx(500 / 1500))
    assert made.sent == pytest.approx(0.5)
    assert made.cost == pytest.approx(400 + 300 + 425)
    assert made.efficiency == pytest.approx((400 + 300 + 200) / 1125)


def test_what_went_wrong_is_counted() -> None:
    wrong = [
        call(1200, least=1001),
        call(1100, least=1000),
        call(900, problems=("0: an unknown role",)),
        call(1, task=False),
    ]
    made = summary("x", [*wrong, call(1, faults=("policy",))], 0.25)

    assert (made.over, made.cannot_fit, made.invalid, made.task, made.faults) == (1, 1, 1, 0.8, 1)


def test_what_opens_connections_is_seen() -> None:
    sys.addaudithook(counter := cache._Connections())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass

    assert counter.count == 1


def test_better_is_better_at_both() -> None:
    others = [row("more", 0.7, 0.8), row("surer", 0.5, 0.95), row("both", 0.7, 0.95)]

    assert [other.name for other in better(row("own", 0.6, 0.9), others)] == ["both"]


@pytest.mark.parametrize(("sent", "expected"), [(0.6, 0.05), (0.5, 0.10), (0.4, None), (0.8, None)])
def test_the_lead_is_taken_at_equal_tokens(sent: float, expected: float | None) -> None:
    found = lead(row("own", sent, 0.9), [row("b", 0.7, 0.9), row("a", 0.5, 0.8)])

    assert found == (None if expected is None else pytest.approx(expected))


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"breathing"):
        defaults("breathing: 3")


def test_the_command_prints_the_table_and_writes_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "data.jsonl").write_text(json.dumps({"id": "c", "messages": dialogue(30)}))
    arguments = [str(file), "--longer-than", "1000", "--json", str(tmp_path / "rows"), "--also", "policy: fifo"]
    monkeypatch.setattr(sys, "argv", ["cache", *arguments])
    cache.main()

    names = [each["name"] for each in json.loads((tmp_path / "rows").read_text())]
    assert names == ["sliding window", *(f"half-window steps from {high:g}" for high in cache.STEPS), *names[-3:]]
    assert names[-3:] == ["default settings", "without recall", "policy: fifo"]
    assert all(name in capsys.readouterr().out for name in ["1 conversations, 31 requests"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--longer-than", "1000000"], "no conversation in", id="nothing long enough"),
        pytest.param(["--also", "policy: oldest"], "policy", id="no such policy"),
    ],
)
def test_what_cannot_be_measured_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (file := tmp_path / "data.jsonl").write_text(json.dumps({"id": "c", "messages": dialogue(3)}))
    monkeypatch.setattr(sys, "argv", ["cache", str(file), *arguments])

    with pytest.raises(SystemExit):
        cache.main()
    assert message in capsys.readouterr().err


def test_a_chart_without_matplotlib_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(SystemExit, match="pip install matplotlib"):
        cache.draw([row("half-window steps from 1", 0.5, 0.9)], tmp_path / "chart.png")
