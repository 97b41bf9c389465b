import gzip
import json
import time
from itertools import pairwise
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.streaming import Reader, Reading
from proxy.streaming.assembly import Usage

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


def read(data: bytes, content_type: str = SSE, coding: str = "", step: int | None = None, **limits: int) -> Reading:
    reader = Reader(content_type, coding, **limits)
    for start in range(0, len(data), step or max(len(data), 1)):
        reader.feed(data[start : start + (step or len(data))])
    return reader.result()


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def stream(*chunks: Any, end: str = "\n\n", done: bool = True) -> bytes:
    texts = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks] + (["[DONE]"] if done else [])
    return "".join(f"data: {text}{end}" for text in texts).encode()


USAGE = {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}}
TALK = [
    delta(role="assistant", content=""),
    delta(content="航天"),
    delta(1, content="other"),
    delta(content=" works 🚀"),
    delta(1, finish="length"),
    delta(finish="stop"),
    {"choices": [], "usage": USAGE},
]
SPOKEN = Reading(
    finish_reasons={0: "stop", 1: "length"},
    usage=Usage(20, 7, 16),
    message={"role": "assistant", "content": "航天 works 🚀"},
    done=True,
)


def test_a_stream_is_read() -> None:
    assert read(stream(*TALK)) == SPOKEN


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\r\n\n", "\n\r"])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 64])
def test_any_line_end_in_any_split(end, step) -> None:
    assert read(stream(*TALK, end=end), step=step) == SPOKEN


@settings(max_examples=80, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 900), max_size=12),
    end=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r"]),
    coding=st.sampled_from(["", "gzip", "br", "zstd"]),
)
def test_any_split_of_any_coding_reads_the_same(cuts, end, coding) -> None:
    data = stream(*TALK, end=end)
    data = {"": bytes, "gzip": gzip.compress, "br": brotli.compress, "zstd": zstandard.compress}[coding](data)
    reader = Reader(SSE, coding)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        reader.feed(data[start:stop])
    assert reader.result() == SPOKEN


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xef\xbb\xbf" + stream(*TALK), id="byte order mark"),
        pytest.param(b": OPENROUTER PROCESSING\n\n:\n\n" + stream(*TALK), id="comments"),
        pytest.param(b"\n\n\n" + stream(*TALK), id="blank lines"),
        pytest.param(stream(*TALK).replace(b"data: ", b"data:"), id="no space"),
        pytest.param(stream(*TALK).replace(b"data: ", b"event: message\nid: 7\nretry: 10\ndata: "), id="other fields"),
        pytest.param(stream(*TALK).replace(b'"choices"', b'\ndata:  "choices"'), id="several data lines"),
        pytest.param(stream(*TALK).rstrip(b"\n"), id="no last line end"),
        pytest.param(stream(*TALK)[:-1], id="no last blank line"),
        pytest.param(stream("junk", [1], 5, None, {"choices": 3}, {"choices": [None]}, *TALK), id="events of no sense"),
        pytest.param(
            b"data: {broken\n\ndata: \xff\xfe\n\ndata:" + b"[" * 5000 + b"\n\n" + stream(*TALK), id="not JSON"
        ),
        pytest.param(stream(delta(content=3, tool_calls="x"), {"choices": [{"delta": None}]}, *TALK), id="odd types"),
    ],
)
def test_what_a_stream_may_hold_besides(data) -> None:
    assert read(data) == SPOKEN


def test_a_stream_without_its_end() -> None:
    reading = read(stream(*TALK[:4], done=False))
    assert reading.message == SPOKEN.message
    assert not reading.done
    assert reading.finish_reasons == {}


def test_tool_calls_come_together_by_index() -> None:
    def piece(index: int, **fields: Any) -> dict[str, Any]:
        return delta(tool_calls=[{"index": index, **fields}])

    reading = read(
        stream(
            delta(role="assistant", content=None),
            piece(0, id="a", type="function", function={"name": "look", "arguments": ""}, extra_content={"sig": "x"}),
            piece(0, function={"arguments": '{"q":'}),
            piece(1, id="b", type="function", function={"name": "list", "arguments": "{}"}),
            piece(0, function={"arguments": '"é"}'}, id=None),
            delta(finish="tool_calls"),
        ),
        step=5,
    )
    assert reading.message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "look", "arguments": '{"q":"é"}'},
                "extra_content": {"sig": "x"},
            },
            {"id": "b", "type": "function", "function": {"name": "list", "arguments": "{}"}},
        ],
    }


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [
                {"id": "a", "function": {"name": "f", "arguments": "1"}},
                {"id": "b", "function": {"name": "g", "arguments": "2"}},
            ],
            [("a", "f", "1"), ("b", "g", "2")],
            id="ids only",
        ),
        pytest.param(
            [{"id": "a", "function": {"name": "f", "arguments": "1"}}, {"function": {"arguments": "2"}}],
            [("a", "f", "12")],
            id="nothing at all",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}},
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "2"}},
            ],
            [("a", "f", "12")],
            id="name and id repeated",
        ),
    ],
)
def test_tool_calls_of_lax_servers(pieces, calls) -> None:
    message = read(stream(*(delta(tool_calls=[piece]) for piece in pieces))).message
    assert message is not None
    got = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    assert got == calls


def test_everything_else_a_message_may_have() -> None:
    reading = read(
        stream(
            delta(reasoning_content="hm"),
            delta(reasoning_content="m"),
            delta(refusal="no"),
            delta(function_call={"name": "f", "arguments": "{"}),
            delta(function_call={"arguments": "}"}),
            delta(tool_calls=[{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "sel"}}]),
            delta(tool_calls=[{"index": 0, "custom": {"input": "ect"}}]),
        )
    )
    assert reading.message == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hmm",
        "refusal": "no",
        "function_call": {"name": "f", "arguments": "{}"},
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select"}}],
    }


def test_halves_of_a_surrogate_pair_come_together() -> None:
    halves = b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n'
    reading = read(halves % b"ok \\ud83d" + halves % b"\\ude00 and \\ud83d")
    assert reading.message == {"role": "assistant", "content": "ok 😀 and �"}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            b'event: error\ndata: {"error": {"code": "context_length_exceeded"}}\n\n',
            {"code": "context_length_exceeded"},
        ),
        (b'event: error\ndata: {"code": 400, "message": "too long"}\n\n', {"code": 400, "message": "too long"}),
        (
            b'data: {"choices": [], "error": {"message": "overloaded"}}\n\ndata: {"error": 1}\n\n',
            {"message": "overloaded"},
        ),
        (b'data: {}\n\n{"error":\n {"message": "unframed"}}\n', {"message": "unframed"}),
        (b'{"error": {"message": "unframed"}}', {"message": "unframed"}),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_errors_in_a_stream_are_seen(data, error, step) -> None:
    reading = read(data, step=step)
    assert reading.error == error
    assert not reading.done


REPLY = {
    "object": "chat.completion",
    "choices": [
        {"index": 1, "message": {"role": "assistant", "content": "b"}, "finish_reason": "length"},
        {"index": 0, "message": {"role": "assistant", "content": "é", "annotations": []}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
}


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", "", "text/plain"])
@pytest.mark.parametrize("coding", ["", "gzip", "br"])
def test_a_json_reply_is_read(content_type, coding) -> None:
    data = b" \n" + json.dumps(REPLY).encode()
    data = {"": bytes, "gzip": gzip.compress, "br": brotli.compress}[coding](data)
    assert read(data, content_type, coding, step=3) == Reading(
        finish_reasons={0: "stop", 1: "length"},
        usage=Usage(5, 1, 4),
        message={"role": "assistant", "content": "é", "annotations": []},
        done=True,
    )


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "m", "code": "c"}}', {"message": "m", "code": "c"}),
        (b'{"error": "plain"}', "plain"),
        (b'[{"error": {"code": 400}}]', {"code": 400}),
        (b'{"object": "error", "message": "mistral"}', {"object": "error", "message": "mistral"}),
        (b'{"choices": [', None),
        (b"[]", None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_errors_of_json_replies(body, error) -> None:
    assert read(body, JSON).error == error


def test_a_stream_that_calls_itself_something_else_is_read() -> None:
    assert read(stream(*TALK), "text/plain", step=1) == SPOKEN


def test_an_event_over_the_limit_is_left_out_and_the_next_one_is_not() -> None:
    data = stream(delta(content="x" * 3000), *TALK)
    for step in (1, 100, 10_000):
        reading = read(data, step=step, event_limit=1000)
        assert reading.truncated
        assert (reading.message, reading.usage, reading.done) == (SPOKEN.message, SPOKEN.usage, True)


def test_text_over_the_limit_is_not_kept_but_the_rest_is_read() -> None:
    reading = read(stream(*[delta(content="x" * 100)] * 50, *TALK[4:]), body_limit=1000)
    assert reading.truncated
    assert len(reading.message["content"]) == 1000
    assert (reading.usage, reading.finish_reasons[0]) == (SPOKEN.usage, "stop")


@pytest.mark.parametrize(
    "count", ["-1", "1.5", "1e400", "true", '"9"', "null", str(2**53), "9" * 5000], ids=lambda each: each[:8]
)
@pytest.mark.parametrize("content_type", [JSON, SSE])
def test_usage_that_is_no_count_is_as_good_as_absent(count, content_type) -> None:
    body = f'{{"choices": [], "usage": {{"prompt_tokens": {count}, "completion_tokens": 1}}}}'
    assert read((f"data: {body}\n\n" if content_type == SSE else body).encode(), content_type).usage is None


def test_the_usage_of_a_reply_over_the_limit_is_found_at_its_end() -> None:
    big = {"choices": [{"message": {"content": 'a "usage": { x' * 40_000}}], "usage": REPLY["usage"], "id": "x"}
    reading = read(json.dumps(big).encode(), JSON, step=5000, body_limit=100_000)
    assert reading == Reading(usage=Usage(5, 1, 4), truncated=True)


@pytest.mark.parametrize("coding", ["compress", "gzip", "br", "zstd", "deflate"])
def test_what_cannot_be_decoded_is_not_read(coding) -> None:
    assert read(stream(*TALK), coding=coding) == Reading()


@settings(max_examples=150, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.sampled_from(
                [
                    b"data:",
                    b"\n",
                    b"\r",
                    b" ",
                    b"{",
                    b"}",
                    b'"choices":',
                    b"[",
                    b"]",
                    b"event: error",
                    b"1",
                    b"null",
                    b'"delta":',
                    b'"index":',
                    b'"usage":{"prompt_tokens":1e9}',
                    b",",
                    b"\xef\xbb\xbf",
                ]
            )
        ).map(b"".join),
    ),
    content_type=st.sampled_from([SSE, JSON, ""]),
    step=st.integers(1, 40),
)
def test_any_bytes_can_be_read(data, content_type, step) -> None:
    assert read(data, content_type, step=step) == read(data, content_type)


@settings(max_examples=60, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "message",
                        "usage",
                        "error",
                        "index",
                        "tool_calls",
                        "function",
                        "id",
                        "arguments",
                        "prompt_tokens",
                        "content",
                        "finish_reason",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=25,
    )
)
def test_any_json_can_be_read(value) -> None:
    text = json.dumps(value).encode()
    read(b"data: " + text + b"\n\n")
    read(text, JSON)


def test_reading_is_linear_in_the_bytes() -> None:
    """One event of a megabyte in single bytes costs about what its bytes cost, not their square."""

    def cost(size: int) -> float:
        data = stream(delta(content="x" * size))
        before = time.thread_time()
        read(data, step=4)
        return time.thread_time() - before

    small = min(cost(50_000) for _ in range(3))
    assert cost(500_000) < 40 * small


def test_a_result_is_final() -> None:
    reader = Reader(SSE)
    reader.feed(stream(*TALK[:2], done=False))
    first = reader.result()
    reader.feed(stream(*TALK[2:]))
    assert reader.result() is first
