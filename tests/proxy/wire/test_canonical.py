"""The same message stays the same however a client writes it; different messages stay apart."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire import rawjson
from proxy.wire.canonical import canonical, digest

CALL = {
    "id": "call_7",
    "type": "function",
    "function": {"name": "find_berth", "arguments": '{"port":"Gdynia","max":2}'},
}

# What came over the wire, and what each client sends back for it.
SPOKEN = {"role": "assistant", "content": "Berth 4 is free.", "refusal": None, "annotations": []}
CALLING = {
    "role": "assistant",
    "content": None,
    "refusal": None,
    "annotations": [],
    "tool_calls": [{"index": 0, **CALL}],
}
STREAMED_CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
THINKING = {"role": "assistant", "content": "Berth 4.", "reasoning_content": "Two are free, 4 is nearer."}
REFUSING = {"role": "assistant", "content": None, "refusal": "I can't help with that."}


def calls(arguments: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": "call_7", "type": "function", "function": {"name": "find_berth", "arguments": arguments}, **more}]


ECHOES = [
    pytest.param(
        CALLING,
        {
            "content": None,
            "refusal": None,
            "role": "assistant",
            "annotations": [],
            "audio": None,
            "function_call": None,
            "tool_calls": [{**CALL, "index": 0}],
            "parsed": None,
        },
        id="openai python: model_dump()",
    ),
    pytest.param(
        STREAMED_CALLING,
        {"role": "assistant", "annotations": [], "tool_calls": [CALL]},
        id="openai python: the message object itself, null fields unset",
    ),
    pytest.param(
        SPOKEN,
        {"role": "assistant", "content": "Berth 4 is free.", "refusal": None, "parsed": None, "tool_calls": []},
        id="openai node: parse() helpers",
    ),
    pytest.param(
        CALLING,
        {"content": None, "role": "assistant", "tool_calls": calls('{"port": "Gdynia", "max": 2}')},
        id="langchain python: arguments dumped again, with spaces",
    ),
    pytest.param(
        SPOKEN,
        {"content": [{"type": "text", "text": "Berth 4 is free.", "annotations": []}], "role": "assistant"},
        id="langchain python: content blocks",
    ),
    pytest.param(
        CALLING,
        {"role": "assistant", "content": "", "tool_calls": calls('{"port":"Gdynia","max":2}')},
        id="vercel ai sdk: empty string beside calls",
    ),
    pytest.param(
        {**SPOKEN, "content": ""}, {"role": "assistant", "content": ""}, id="vercel ai sdk: an answer without a word"
    ),
    pytest.param(
        THINKING,
        {"role": "assistant", "content": "Berth 4.", "reasoning_content": "Two are free, 4 is nearer."},
        id="openai-compatible ai sdk provider: thoughts echoed",
    ),
    pytest.param(THINKING, {"role": "assistant", "content": "Berth 4."}, id="thoughts dropped after the tool loop"),
    pytest.param(
        THINKING,
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Two are free."}, {"type": "text", "text": "Berth 4."}],
        },
        id="thoughts as a content block",
    ),
    pytest.param(
        CALLING,
        {"role": "assistant", "content": None, "tool_calls": calls('{"max":2.0,"port":"Gdynia"}')},
        id="pydantic-ai: arguments as the dict that was validated",
    ),
    pytest.param(
        STREAMED_CALLING,
        {"role": "assistant", "tool_calls": calls('{"port":"Gdynia","max":2}', extra_content={"google": {"sig": "x"}})},
        id="thought signature on a call",
    ),
    pytest.param(
        REFUSING,
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I can't help with that."}]},
        id="refusal as a content part",
    ),
    pytest.param(
        {"role": "user", "content": "And tomorrow?"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "And tomorrow?", "cache_control": {"type": "ephemeral"}}],
        },
        id="cache_control moved onto a message",
    ),
    pytest.param(
        {"role": "tool", "tool_call_id": "call_7", "content": "4"},
        {"role": "tool", "tool_call_id": "call_7", "name": None, "content": [{"type": "text", "text": "4"}]},
        id="tool result as a text part",
    ),
    pytest.param(
        {"role": "assistant", "content": None, "tool_calls": calls("")},
        {"role": "assistant", "content": None, "tool_calls": calls("{}")},
        id="a call without arguments",
    ),
    pytest.param(
        {"role": "assistant", "content": None, "audio": {"id": "audio_1", "data": "UklGRg", "transcript": "Hello."}},
        {"role": "assistant", "audio": {"id": "audio_1"}},
        id="spoken answer sent back by its id",
    ),
]


@pytest.mark.parametrize(("received", "sent_back"), ECHOES)
def test_what_a_client_sends_back_is_the_message_it_received(
    received: dict[str, Any], sent_back: dict[str, Any]
) -> None:
    assert digest(sent_back) == digest(received)


USER = {"role": "user", "content": "Which berth?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": calls('{"max":2}')}
DIFFERENT = [
    pytest.param(USER, {**USER, "role": "system"}, id="role"),
    pytest.param(USER, {**USER, "name": "ada"}, id="name"),
    pytest.param(USER, {**USER, "content": "Which berth? "}, id="trailing space"),
    pytest.param(USER, {**USER, "content": ["Which", " berth?"]}, id="another split into parts"),
    pytest.param(USER, {**USER, "images": ["iVBOR"]}, id="a field that only some providers know"),
    pytest.param(CALLED, {**CALLED, "content": "Let me see."}, id="text beside the call"),
    pytest.param(CALLED, {**CALLED, "tool_calls": calls('{"max":3}')}, id="an argument"),
    pytest.param(CALLED, {**CALLED, "tool_calls": calls('{"max":"2"}')}, id="an argument's type"),
    pytest.param(CALLED, {**CALLED, "tool_calls": calls('{"max":2,"port":null}')}, id="an argument that is null"),
    pytest.param(CALLED, {**CALLED, "tool_calls": CALLED["tool_calls"] * 2}, id="the same call twice"),
    pytest.param(
        {**CALLED, "tool_calls": calls('"2"')}, {**CALLED, "tool_calls": calls("2 ")}, id="a JSON string and a number"
    ),
    pytest.param(
        {**CALLED, "tool_calls": calls('"max')}, {**CALLED, "tool_calls": calls('"\\"max"')}, id="broken JSON as text"
    ),
    pytest.param(REFUSING, {**REFUSING, "refusal": "No."}, id="refusal"),
    pytest.param(REFUSING, {"role": "assistant", "content": "I can't help with that."}, id="refusal and content"),
    pytest.param(
        {"role": "tool", "tool_call_id": "a", "content": "4"},
        {"role": "tool", "tool_call_id": "b", "content": "4"},
        id="which call a result answers",
    ),
    pytest.param(
        {"role": "tool", "tool_call_id": "a", "content": '{"a":1}'},
        {"role": "tool", "tool_call_id": "a", "content": '{"a": 1}'},
        id="spacing inside a result, which the model reads",
    ),
    pytest.param(
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        id="legacy call and tool call",
    ),
    pytest.param(
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "1"}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "1.0"}}]},
        id="input of a custom call, which is text",
    ),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_the_model_reads_differently_is_another_message(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest(one) != digest(other)


TEXT = st.text(st.sampled_from('ab"\\{}[],:é港 1'), max_size=4)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1e21, 2**70]) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
CALLS = st.lists(st.tuples(TEXT, TEXT, VALUE), max_size=2)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "texts": st.lists(TEXT.filter(bool), max_size=2)},
    optional={"name": TEXT, "calls": CALLS, "refusal": TEXT.filter(bool), "answers": TEXT},
)


def write(message: dict[str, Any], seed: int) -> bytes:
    """The message as some client writes it: every choice that means nothing is made at random."""
    rng = random.Random(seed)

    def spelled(value: Any) -> Any:
        if isinstance(value, dict):
            return dict(rng.sample([(k, spelled(v)) for k, v in value.items()], len(value)))
        if isinstance(value, list):
            return [spelled(item) for item in value]
        return float(value) if type(value) is int and abs(value) < 2**53 and rng.random() < 0.5 else value

    def dumped(value: Any) -> str:
        return json.dumps(
            spelled(value), indent=rng.choice([None, 0, 2]), ensure_ascii=rng.random() < 0.5, separators=(",", ": ")
        )

    texts = message["texts"]
    content: Any = [{"type": rng.choice(["text", "input_text"]), "text": text} for text in texts]
    if len(texts) < 2 and rng.random() < 0.6:
        content = texts[0] if texts else rng.choice([None, ""])
    raw: dict[str, Any] = {"role": message["role"], "content": content}
    if content is None and rng.random() < 0.5:
        del raw["content"]
    raw |= {field: message[name] for name, field in (("name", "name"), ("answers", "tool_call_id")) if name in message}
    if "refusal" in message:
        raw["refusal"] = message["refusal"]
    if made := message.get("calls"):
        raw["tool_calls"] = [
            {"id": id_, "function": {"name": name, "arguments": dumped(arguments)}} for id_, name, arguments in made
        ]
    for noise in rng.sample(["tool_calls", "function_call", "name", "refusal", "tool_call_id"], 2):
        raw.setdefault(noise, None)
    return dumped(raw).encode()


def read(message: dict[str, Any]) -> str:
    """What the model reads of a message, in one spelling; independent of the code under test."""
    return json.dumps({**message, "calls": message.get("calls") or []}, sort_keys=True)


@settings(max_examples=300, deadline=None)
@given(MESSAGES, st.integers(0, 999), st.integers(0, 999))
def test_writing_a_message_again_does_not_change_it(message: dict[str, Any], one: int, other: int) -> None:
    assert canonical(rawjson.read(write(message, one))) == canonical(rawjson.read(write(message, other)))


@settings(max_examples=400, deadline=None)
@given(MESSAGES, MESSAGES, st.integers(0, 999))
def test_two_messages_are_the_same_only_if_the_model_reads_the_same(
    one: dict[str, Any], other: dict[str, Any], seed: int
) -> None:
    same = canonical(rawjson.read(write(one, seed))) == canonical(rawjson.read(write(other, seed + 1)))

    assert same == (read(one) == read(other))


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "function_call", "audio", "x"]), VALUE))
def test_any_object_has_a_digest(message: dict[str, Any]) -> None:
    assert len(digest(message)) == 16


def test_half_an_emoji_is_the_same_in_a_decoded_reply_and_in_bytes() -> None:
    raw = b'{"role":"assistant","content":"\\ud83d"}'

    assert digest(json.loads(raw)) == digest(rawjson.read(raw))


@given(role=st.text(), content=st.text(st.characters(codec=None)))
def test_a_plain_message_has_the_form_of_one_with_more(role: str, content: str) -> None:
    message = {"role": role, "content": content}
    assert canonical(message) == canonical({**message, "name": None})
