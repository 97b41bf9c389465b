import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import calibration


def tokenized(request: httpx.Request) -> httpx.Response:
    """A server that frames each message with four tokens, leaves tools out and makes a token of every three bytes."""
    body = json.loads(request.content)
    if request.url.path == "/apply-template":
        return httpx.Response(200, json={"prompt": "".join(f"<..{m['role']}>{m['content']}" for m in body["messages"])})
    assert request.url.path == "/tokenize"
    return httpx.Response(200, json={"tokens": list(range(len(body["content"].encode()) // 3))})


def conversation(turns: int) -> dict[str, Any]:
    words = "the ferry leaves the harbour at noon and comes back in the evening if the weather is good enough"
    rng = random.Random(turns)
    roles = ("user", "assistant")
    said = [" ".join(rng.choices(words.split(), k=rng.randint(20, 80))) for _ in range(turns)]
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
    tools = [{"type": "function", "function": {"name": "sail", "parameters": {"type": "object"}}}]
    return {"id": str(turns), "request": {"messages": messages, "tools": tools}}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "ferries.jsonl"
    file.write_text("\n".join(json.dumps(conversation(turns)) for turns in range(5, 25)))
    return file


def measured(file: Path, requests: int = 6) -> tuple[list[calibration.Row], calibration.Calibration]:
    rng = random.Random(1)
    drawn = list(calibration.conversations(file, 20, requests, rng))
    with httpx.Client(base_url="http://server", transport=httpx.MockTransport(tokenized)) as server:
        return calibration.rows(server, drawn, rng)


def test_estimates_come_near_what_the_server_counts(recorded: Path) -> None:
    table, known = measured(recorded)

    later = sorted(abs(row.error) for row in table[10:])
    assert later[len(later) // 2] < 0.05
    assert not any(row.cut for row in table)
    assert known.weights[5] < 0.5


def test_conversations_grow_in_turns(recorded: Path) -> None:
    rng = random.Random(1)
    drawn = list(calibration.conversations(recorded, 5, 0, rng))
    made = list(calibration.in_turns(drawn, rng))

    assert len(drawn) == 5
    assert len(made) == sum(len(each.ends) for each in drawn)
    for each in drawn:
        assert [end for one, end in made if one is each] == sorted(each.ends)
        assert all(each.messages[end - 1]["role"] == "user" for end in each.ends)


def test_the_table_names_every_kind(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calibration.show(*measured(recorded, 3))

    printed = capsys.readouterr().out
    for name in ("ferries", "opening", "with a past", "all", "learned: latin"):
        assert name in printed
