import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.quality import answers
from bench.quality.model import Model, right, rouge_l, words

PLACE = "under the blue flower pot"
FILLER = "It rained for a while and then the sun came out again, as it does in spring. " * 4
RECORD = {
    "id": "talk",
    "messages": [
        {"role": "system", "content": "You are brief."},
        *({"role": ("user", "assistant")[i % 2], "content": f"Remark {i}. {FILLER}"} for i in range(40)),
    ],
    "qas": [
        {"question": "Where is the spare key?", "answer": PLACE, "evidence": [5]},
        {"question": "Who is on the roof?", "answer": "the cat", "evidence": [7]},
        {"question": "What is it that everybody knows?", "answer": "rain is wet", "evidence": [9]},
    ],
}
RECORD["messages"][5]["content"] = f"I have put the spare key {PLACE}."
RECORD["messages"][7]["content"] = "The cat is on the roof again."


def answer(messages: list[dict[str, Any]]) -> str:
    """A model that finds a key, tells what everybody knows, and cannot tell who is on the roof."""
    *said, question = (message["content"] or "" for message in messages)
    if "everybody" in question:
        return "Rain is wet."
    if "key" in question and any(PLACE in text for text in said):
        return f"The spare key is {PLACE}!"
    return "I do not know."


class Handler(BaseHTTPRequestHandler):
    requests: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append(request)
        text = answer(request["messages"])
        body: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}}]}
        body["usage"] = {"prompt_tokens": len(request["messages"])}
        if self.status != 200:
            body = {"error": {"message": "exceeds the available context size" if self.status == 400 else "no"}}
        data = json.dumps(body).encode()
        self.send_response(self.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.requests = []
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/v1"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("reply", "question", "expected"),
    [
        pytest.param("It costs 161 dollars.", {"answer": "161"}, True, id="a word"),
        pytest.param("It costs 1610 dollars.", {"answer": "161"}, False, id="part of a word"),
        pytest.param(
            "On march 3RD.", {"answer": "x", "answer_variants": ["2019-03-03", "March 3rd"]}, True, id="variant"
        ),
        pytest.param("在前门附近", {"answer": "x", "answer_parts": ["前门"]}, True, id="without spaces"),
        pytest.param("Tea and rye", {"answer": "x", "answer_parts": ["tea", "milk"]}, False, id="one of two parts"),
        pytest.param("", {"answer": "…"}, False, id="an answer without words"),
    ],
)
def test_a_right_answer_has_the_words_in_it(reply: str, question: dict[str, Any], expected: bool) -> None:
    assert right(reply, question) is expected


def test_rouge_is_of_the_longest_common_subsequence() -> None:
    pytest.importorskip("rouge_score", reason="the extra bench is not installed")
    score = rouge_l()

    assert score("the cat sat on the mat", "the cat sat on the mat") == 1
    assert score("the cat sat", "the dog sat down") == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert score("前门附近", "前门") == pytest.approx(2 / 3)
    assert score("", "something") == 0


def test_words_are_split_in_scripts_without_spaces() -> None:
    assert words("Order K-12, 前门!") == ["order", "k", "12", "前", "门"]


def test_questions_count_that_the_evidence_answers_and_nothing_does_not(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "rouge_l", lambda: lambda reference, reply: float(reference == reply))
    file, out, results = tmp_path / "talk.jsonl", tmp_path / "out.json", tmp_path / "results.jsonl"
    file.write_text(json.dumps(RECORD) + "\n")
    arguments = [str(file), "--model-url", server, "--embeddings", "none", "--windows", "0.5", "--json", str(out)]

    result = CliRunner().invoke(answers.app, [*arguments, "--results", str(results)])

    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())["talk"]
    assert (figures["counted"], figures["questions"]) == (1, 3)
    assert "1 of 3 questions" in " ".join(result.output.split())
    assert {name: figures[name]["right"] for name in ("nothing", "evidence", "full history")} == {
        "nothing": 0,
        "evidence": 100,
        "full history": 100,
    }
    assert (figures["newest, 50%"]["sent"], figures["newest, 50%"]["right"]) == (0, 0)
    assert (figures["hybrid, 50%"]["sent"], figures["hybrid, 50%"]["right"]) == (100, 100)
    assert all(request["messages"][-1]["content"].endswith(answers.BRIEFLY) for request in Handler.requests)
    assert figures["newest, 50%"]["rouge_l"] == pytest.approx(2 / 3, abs=0.001), "two answers are the same"
    assert figures["full history"]["tokens"] == 42
    assert all(request["temperature"] == 0 and request["model"] == "local" for request in Handler.requests)

    asked = len(Handler.requests)
    again = CliRunner().invoke(answers.app, [*arguments, "--results", str(results), "--resume"])
    assert again.exit_code == 0, again.output
    assert len(Handler.requests) == asked == 15


def test_how_to_answer_is_said_after_a_question_of_parts_too() -> None:
    parts = [{"type": "text", "text": "A note."}, {"type": "text", "text": "Who?"}]

    made = answers.briefly({"messages": [{"role": "user", "content": parts}]})

    assert made["messages"][0]["content"] == [*parts, {"type": "text", "text": answers.BRIEFLY}]
    assert len(parts) == 2, "what was given stays as it is"


def test_dialogues_with_planted_facts_need_no_data(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "rouge_l", lambda: lambda reference, reply: 1.0)
    arguments = ["--planted", "1", "--facts", "2", "--messages", "40", "--model-url", server, "--embeddings", "none"]

    result = CliRunner().invoke(answers.app, [*arguments, "--windows", "0.5", "--policies", "newest"])

    assert result.exit_code == 0, result.output
    assert "planted: answers of local, 1 conversations, 0 of 2 questions" in " ".join(result.output.split())


def test_a_prompt_that_is_too_long_has_no_answer(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "status", 400)

    assert Model(f"{server}/", "m").reply({"messages": [{"role": "user", "content": "?"}]}).text == ""


def test_a_server_that_refuses_is_named(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "status", 401)

    with pytest.raises(SystemExit, match="--model-url: status 401"):
        Model(f"{server}/", "m").reply({"messages": [{"role": "user", "content": "?"}]})


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match="does not answer"):
        Model("http://127.0.0.1:9/v1/", "m").reply({"messages": []})


def test_a_run_without_a_server_is_refused() -> None:
    result = CliRunner().invoke(answers.app, ["--planted", "1"])

    assert result.exit_code == 2
    assert "--model-url" in result.output
