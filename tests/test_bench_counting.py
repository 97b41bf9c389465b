import json
from pathlib import Path
from typing import Any

import pytest

from bench import counting


def exchange(**fields: Any) -> dict[str, Any]:
    """A recorded exchange whose request costs 8 tokens."""
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
    usual = {"id": "x", "host": "api.openai.com", "api": "chat_completions", "status": 200, "features": []}
    return {**usual, "request": request, "body": {"usage": {"prompt_tokens": 8}}, **fields}


def table(folder: Path, *exchanges: dict[str, Any], all_hosts: bool = False) -> list[counting.Row]:
    file = folder / "recorded.jsonl"
    file.write_text("\n".join(map(json.dumps, exchanges)))
    return list(counting.rows(file, all_hosts))


def test_ours_stands_beside_theirs(tmp_path: Path) -> None:
    [row] = table(tmp_path, exchange(body={"usage": {"prompt_tokens": 5}}))

    assert (row.ours, row.theirs, row.difference) == (8, 5, 3)


def test_the_usage_of_a_stream_is_in_its_last_chunk(tmp_path: Path) -> None:
    text = 'data: {"usage": null}\n\ndata: {"usage": {"prompt_tokens": 8}}\n\ndata: [DONE]\n\n'

    assert [row.difference for row in table(tmp_path, exchange(body=None, body_text=text))] == [0]


def test_errors_other_hosts_and_other_interfaces_are_left_out(tmp_path: Path) -> None:
    left_out = [exchange(status=400), exchange(host="example.com"), exchange(api="responses"), exchange(body={})]

    assert table(tmp_path, *left_out) == []
    assert len(table(tmp_path, *left_out, all_hosts=True)) == 1


def test_base64_that_was_cut_has_its_size_again(tmp_path: Path) -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA...[1096 base64 characters cut]", "format": "mp3"}}
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": [audio]}]}

    assert [row.ours for row in table(tmp_path, exchange(request=request))] == [3 + 4 + 4 + 1]


def test_the_summary_names_the_largest_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counting.show(table(tmp_path, exchange(), exchange(body={"usage": {"prompt_tokens": 5}}, features=["tools"])))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-2:]] == [
        ["text", "alone", "1", "1", "+0", "0.0%"],
        ["tools", "1", "0", "+3", "60.0%"],
    ]
