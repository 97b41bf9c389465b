import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.data import Conversation
from bench.quality.intent import app
from bench.quality.slices import slices
from tests.validator import violations

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "done"}


FILLER = " ".join(["It rained for a while and then the sun came out again, as it does in spring."] * 4)


def said(number: int, role: str | None = None) -> dict[str, Any]:
    return {
        "role": role or ("assistant" if number % 2 else "user"),
        "content": f"Remark {number} on the weather. {FILLER}",
    }


def conversation(messages: list[dict[str, Any]], **record: Any) -> Conversation:
    request = {"model": "gpt-4o", "messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}
    return Conversation("talk", request, record)


def test_slices_do_not_overlap_and_begin_with_the_instructions() -> None:
    system = {"role": "system", "content": "Be brief."}
    found = list(slices(conversation([system, *map(said, range(95))])))

    assert [[each["content"] for each in one.conversation.request["messages"]] for one in found] == [
        ["Be brief.", *(said(i)["content"] for i in range(start, start + 40))] for start in (0, 40)
    ]
    assert all("tools" not in one.conversation.request for one in found)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([*map(said, range(39)), CALL, RESULT, *map(said, range(39))], id="between a call and its result"),
        pytest.param([*map(said, range(40)), CALL, RESULT, *map(said, range(38))], id="beside them"),
    ],
)
def test_no_group_is_cut_in_half(messages: list[dict[str, Any]]) -> None:
    found = list(slices(conversation(messages)))

    assert len(found) == 2
    assert all(violations(one.conversation.request["messages"]) == [] for one in found)
    assert sum(len(one.conversation.request["messages"]) for one in found) >= len(messages) - 2


def turn(number: int, calls: int) -> list[dict[str, Any]]:
    """A user's message and its answer, after so many parallel calls of tools."""
    made = [
        {"id": f"c{number}-{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(calls)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": f"Result {call['id']}."} for call in made]
    asked = [{"role": "assistant", "content": None, "tool_calls": made}, *results] if made else []
    return [said(2 * number), *asked, said(2 * number + 1)]


@given(st.lists(st.integers(0, 5), min_size=10, max_size=60))
def test_every_slice_is_a_conversation_that_an_upstream_takes(calls: list[int]) -> None:
    messages = [message for number, each in enumerate(calls) for message in turn(number, each)]
    found = [one.conversation.request["messages"] for one in slices(conversation(messages))]
    contents = [json.dumps(message) for one in found for message in one]

    assert len(found) == len(messages) // 40
    assert all(violations(one) == [] for one in found)
    assert all(28 <= len(one) <= 40 for one in found)
    assert contents == [content for content in map(json.dumps, messages) if content in contents], "in order, each once"


def test_an_intent_is_the_task_the_constraints_and_the_evidence() -> None:
    questions = [
        {"question": "Which day?", "category": "booking_slot", "evidence": [4, 5], "evidence_mode": "any"},
        {"question": "What was said?", "category": "system_inform", "evidence": [6, 7], "evidence_mode": "all"},
        {"question": "And later?", "category": "booking_slot", "evidence": [44]},
        {"question": "Half of it?", "category": "booking_slot", "evidence": [8, 44]},
        {"question": "Who won?", "category": "booking_slot", "evidence": [2], "unanswerable": True},
    ]
    first, second = slices(conversation([*map(said, range(80))], qas=questions))

    assert [set(probe.facts) for probe in first.intents] == [
        {frozenset({0}), frozenset({4}), frozenset({4, 5})},
        {frozenset({0}), frozenset({4}), frozenset({6}), frozenset({7})},
    ]
    assert [set(probe.facts) for probe in second.intents] == [{frozenset({0}), frozenset({4})}]
    assert first.intents[0].request["messages"][-1] == {"role": "user", "content": "Which day?"}


def test_the_command_tells_what_was_lost_and_added(tmp_path: Path) -> None:
    file, out = tmp_path / "talk.jsonl", tmp_path / "out.json"
    messages = [*map(said, range(40))]
    messages[2]["content"] = "It must be a Tuesday, at the harbour."
    question = {"question": "Which day at the harbour?", "category": "booking_slot", "evidence": [2]}
    file.write_text(json.dumps({"id": "talk", "messages": messages, "qas": [question]}) + "\n")
    arguments = [str(file), "--model", "none", "--windows", "0.5", "--policies", "identity,newest,hybrid"]

    result = CliRunner().invoke(app, [*arguments, "--json", str(out)])

    assert result.exit_code == 0, result.output
    figures = {name: by_share["0.5"] for name, by_share in json.loads(out.read_text()).items()}
    assert figures["identity"]["lost"] == 0
    assert figures["newest"]["lost"] == 50, "the task is pinned, the constraint gone"
    assert figures["hybrid"]["lost"] == 0, "it comes back for the question"
    assert figures["hybrid"]["requests"] == 21
    assert 0 < figures["hybrid"]["p50_ms"] <= figures["hybrid"]["p99_ms"]


def test_a_file_without_such_a_slice_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "talk.jsonl").write_text(json.dumps({"id": "talk", "messages": [said(0)]}) + "\n")

    result = CliRunner().invoke(app, [str(file), "--model", "none"])

    assert result.exit_code == 2
    assert "40 messages with a question" in result.output
