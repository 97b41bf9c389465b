"""The figures below reproduce the usage that a provider reported for requests of the same shape."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import tokens, wire
from proxy.tokens import Cache, Measure
from proxy.tokens.ratios import NOTHING, Ratios
from proxy.wire import chat
from tests.proxy.counted import message, total

WEATHER = {
    "name": "get_current_weather",
    "description": "Get the current weather in a given location",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
            "unit": {
                "type": "string",
                "description": "The unit of temperature to return",
                "enum": ["celsius", "fahrenheit"],
            },
        },
        "required": ["location"],
    },
}
ASK = [
    {"role": "system", "content": "You are a helpful assistant that can answer to questions about the weather."},
    {"role": "user", "content": "What's the weather like in San Francisco?"},
]
NOW = {"name": "read_clock", "parameters": {"type": "object", "properties": {}}}


def tool(function: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": function}


def call(number: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("model", "messages", "expected"),
    [
        ("gpt-4o", [{"role": "user", "content": "hello"}], 8),  # 3 + role + hello, 3 that prime the reply
        ("gpt-4o", [{"role": "user", "content": [{"type": "text", "text": "hello"}]}], 8),
        ("gpt-4o", [{"role": "developer", "content": "hello"}], 8),
        ("gpt-4", [{"role": "system", "content": "hello:"}], 9),
        ("gpt-4o", [{"role": "user", "content": "hello", "name": "bob"}], 10),  # 1 for the name, and the name
        ("gpt-4o", [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}], 13),
        ("gpt-4o", [{"role": "assistant", "content": None, "refusal": "no"}], 8),
        ("gpt-4o", [{"role": "user", "content": "<|endoftext|>"}], 14),  # not the special token, which would be 1
    ],
    ids=["one", "parts", "developer", "cl100k", "name", "two", "refusal", "special token"],
)
def test_plain_messages_cost_their_text_and_framing(model: str, messages: list[dict[str, Any]], expected: int) -> None:
    assert total(model, messages) == expected


def test_tools_are_counted_as_declarations() -> None:
    """OpenAI's cookbook prints 101 for gpt-4o and 105 for gpt-4; gpt-4's framing depends on the system message."""
    assert total("gpt-4o", ASK, tools=[tool(WEATHER)]) == 101
    assert abs(total("gpt-4", ASK, tools=[tool(WEATHER)]) - 105) <= 3


def test_legacy_functions_cost_what_tools_do() -> None:
    assert total("gpt-4o", ASK, functions=[WEATHER]) == total("gpt-4o", ASK, tools=[tool(WEATHER)])


def test_a_tool_without_arguments_costs_its_name_and_eighteen() -> None:
    user = [{"role": "user", "content": "hello"}]

    assert total("gpt-4o", user, tools=[tool(NOW)]) == 8 + 18 + 2  # read, _clock


@pytest.mark.parametrize(
    ("choice", "more"),
    [("auto", 0), ("required", 0), ("none", 1), (tool({"name": "read_clock"}), 13), ({"type": "x"}, 0), (7, 0)],
    ids=["auto", "required", "none", "named", "unknown object", "number"],
)
def test_a_tool_choice_costs_where_it_says_something(choice: Any, more: int) -> None:
    without = total("gpt-4o", ASK, tools=[tool(NOW)])

    assert total("gpt-4o", ASK, tools=[tool(NOW)], tool_choice=choice) == without + more


def test_a_call_and_its_result_cost_their_texts_the_name_twice_and_thirteen() -> None:
    ask = [{"role": "user", "content": "hello"}]
    answered = [
        {"role": "assistant", "content": None, "tool_calls": [call(1, "read_clock", "{}")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    texts = 2 * 2 + 1 + 2  # the name twice, {}, noon (n + oon)

    assert total("gpt-4o", ask + answered) == total("gpt-4o", ask) + texts + 13


def test_parallel_calls_are_one_call_of_a_wrapper() -> None:
    calls = [call(1, "read_clock", '{"zone": "UTC"}'), call(2, "read_clock", "{}")]
    wrapped = (
        '{"tool_uses":[{"recipient_name":"functions.read_clock","parameters":{"zone":"UTC"}},'
        '{"recipient_name":"functions.read_clock","parameters":{}}]}'
    )
    counter = tokens.counter("gpt-4o")

    counted = counter.message(message(role="assistant", tool_calls=calls))

    assert counted == 4 + 5 + counter.content(wrapped) + 2 * 2


def test_arguments_that_are_no_json_are_counted_as_they_are() -> None:
    counter = tokens.counter("gpt-4o")
    broken = [call(1, "read_clock", '{"zone": '), call(2, "read_clock", "[" * 5_000)]

    assert counter.message(message(role="assistant", tool_calls=broken)) > counter.content("[" * 5_000)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "function", "name": "read_clock", "content": "{}"}], 9),  # prime, 3, the name, {}
        ([{"role": "assistant", "content": "", "function_call": {"name": "read_clock", "arguments": "{}"}}], 13),
    ],
    ids=["result", "call"],
)
def test_legacy_calls_and_results(messages: list[dict[str, Any]], expected: int) -> None:
    assert total("gpt-3.5-turbo", messages) == expected


def test_a_response_schema_counts_and_other_formats_do_not() -> None:
    user = [{"role": "user", "content": "hello"}]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "result", "schema": schema, "strict": True}}
    counted = tokens.counter("gpt-4o").content('{"type":"object","properties":{"city":{"type":"string"}}}')

    assert total("gpt-4o", user, response_format={"type": "json_object"}) == 8
    assert total("gpt-4o", user, response_format=wanted) == 8 + 11 + 1 + counted
    wanted["json_schema"]["description"] = "Where it is"
    assert total("gpt-4o", user, response_format=wanted) == 8 + 11 + 1 + counted + 5  # // Where it is\n


def test_image_cost_is_within_the_message_and_told_apart() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}
    m = message(content=[{"type": "text", "text": "hello"}, picture])
    counter = tokens.counter("gpt-4o")

    assert counter.images(m) == 85
    assert counter.message(m) == 4 + 1 + 85


@pytest.mark.parametrize(
    ("part", "least", "most"),
    [
        ({"type": "input_audio", "input_audio": {"data": "A" * 72_000, "format": "mp3"}}, 44, 100),
        ({"type": "input_audio", "input_audio": {"data": "A" * 43_000, "format": "wav"}}, 10, 20),
        ({"type": "file", "file": {"file_data": "A" * 17_700, "filename": "a.pdf"}}, 200, 260),
        ({"type": "file", "file": {"file_id": "file-1"}}, 1_500, 1_500),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + "A" * 1_000_000}}, 2_000, 2_000),
        ({"type": "thinking", "thinking": "x" * 3_000}, 1_000, 1_050),
        ({"type": "image_url", "image_url": None}, 5, 30),
    ],
    ids=["mp3", "wav", "pdf", "file id", "unknown media", "unknown text", "null image"],
)
def test_other_parts_cost_by_their_size(part: dict[str, Any], least: int, most: int) -> None:
    assert least <= tokens.counter("gpt-4o").message(message(content=[part])) - 4 <= most


def test_content_that_is_no_content_costs_by_its_size() -> None:
    assert tokens.counter("gpt-4o").message(message(content={"a": "b" * 300})) >= 100


def test_only_models_with_a_public_tokenizer_are_exact() -> None:
    assert not tokens.counter("gpt-4.1-2025-04-14").estimated
    assert not tokens.counter("openai/gpt-4").estimated
    assert tokens.counter("claude-sonnet-4-5").estimated
    assert tokens.counter("no-such-model").estimated
    assert tokens.counter(None).estimated


def test_estimates_follow_the_ratios_and_the_classes() -> None:
    counter = tokens.counter("claude-sonnet-4-5")
    m = message(content="Please book a table for four people tonight, and tell me when it is done.")
    plain = counter.with_ratios(Ratios()).message(m)

    assert counter.with_ratios(Ratios(latin=2.0)).message(m) == 2 * plain - counter.fixed(m)
    assert counter.with_ratios(Ratios(cjk=9.0)).message(m) == plain
    assert counter.message(m) > plain


def test_ratios_leave_an_exact_counter_alone() -> None:
    counter = tokens.counter("gpt-4o")

    assert counter.with_ratios(Ratios(2, 2, 2, 2)) is counter


def test_an_estimate_counts_tools_as_json() -> None:
    counter = tokens.counter("gemini-2.5-pro").with_ratios(Ratios())
    given = chat.Settings(tools=(tool(NOW),))

    assert counter.tools(given) == 15 + counter.content(json.dumps(tool(NOW), separators=(",", ":")))


def test_classes_add_up_to_the_text() -> None:
    text = "Hello there, 你好, Привет, {'a': 12345}"
    counter = tokens.counter("qwen2.5-7b-instruct").with_ratios(Ratios())
    m = message(content=text)

    assert sum(counter.classes(m)) == counter.content(text)
    assert all(count > 0 for count in counter.classes(m)[:4])


words = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["\ud800", " " * 50, "=" * 50, "<|im_end|>", "😀" * 9, "\r\n\r\n", "e\u0301" * 9, "你好。"]),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=12,
)


@given(tools=st.lists(json_values, max_size=3), choice=json_values, wanted=json_values)
@settings(max_examples=60, deadline=None)
def test_no_settings_make_it_raise(tools: list[Any], choice: Any, wanted: Any) -> None:
    given_ = chat.Settings(
        tools=tuple(tools),
        functions=({"name": "f", "parameters": wanted},),
        tool_choice=choice,
        response_format={"json_schema": wanted},
    )
    for model in ("gpt-4o", "gpt-4", "claude-3-5-haiku"):
        counter = tokens.counter(model)
        assert counter.overhead(given_) >= counter.tools(given_) > 0


@given(content=json_values, calls=st.lists(st.tuples(words, words), max_size=3), name=words)
@settings(max_examples=60, deadline=None)
def test_no_message_makes_it_raise_or_costs_more_than_its_bytes(
    content: Any, calls: list[tuple[str, str]], name: str
) -> None:
    fields = {"role": "assistant", "content": content}
    fields |= {"tool_calls": [call(i, *texts) for i, texts in enumerate(calls)]} if calls else {"name": name}
    body = json.dumps({"messages": [fields, {"role": "tool", "tool_call_id": "call_0", "content": name}]}).encode()
    parsed = wire.parse(body)

    counted = total("gpt-4o", json.loads(body)["messages"])

    assert len(parsed.messages) < counted <= tokens.upper_bound(len(body))


def test_a_cache_counts_once_and_forgets_what_is_oldest() -> None:
    cache = Cache(max_bytes=800)
    for number in range(3):
        cache.put(("k", bytes([number])), Measure(number, NOTHING))
        cache.get(("k", b"\x00"))

    assert len(cache) == 2
    assert cache.get(("k", b"\x00")) == Measure(0, NOTHING)
    assert cache.get(("k", b"\x01")) is None


def test_a_cached_message_follows_later_ratios() -> None:
    cache, counter, m = Cache(), tokens.counter("claude-3-5-haiku"), message(content="a few words of prose")

    first = cache.message(counter, m)
    doubled = cache.message(counter.with_ratios(Ratios(9, 9, 9, 9)), m)

    assert first == counter.message(m)
    assert doubled == counter.with_ratios(Ratios(9, 9, 9, 9)).message(m) > first
    assert len(cache) == 1


def test_a_cache_keeps_models_apart_that_count_images_differently() -> None:
    cache = Cache()
    m = message(content=[{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}])

    assert cache.message(tokens.counter("gpt-4o"), m) == 4 + 85 + 8 * 170
    assert cache.message(tokens.counter("gpt-4o-mini"), m) == 4 + 2833 + 8 * 5667


def test_a_cache_bears_many_threads() -> None:
    cache, counter = Cache(max_bytes=4000), tokens.counter("gpt-4o")
    messages = [message(content=f"message {number}") for number in range(40)]
    wrong = []

    def work() -> None:
        wrong.extend(m for m in messages * 3 if cache.message(counter, m) != counter.message(m))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
    assert len(cache) == 10
