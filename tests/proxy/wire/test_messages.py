"""One message's bytes as a value: every shape of content, part, call and extra that clients are known to send."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import messages, rawjson
from proxy.wire.chat import UNKNOWN, Audio, Call, File, Image, Message, Opaque, Shape, Text
from proxy.wire.messages import digest, read_message


def read(message: dict) -> Message:
    raw = json.dumps(message).encode()
    return read_message(raw, digest(raw))


@pytest.mark.parametrize(
    ("message", "shape", "parts"),
    [
        pytest.param({"content": "hi"}, Shape.STRING, (Text("hi"),), id="string"),
        pytest.param({"content": ""}, Shape.STRING, (Text(""),), id="empty string"),
        pytest.param({"content": None}, Shape.NULL, (), id="null"),
        pytest.param({}, Shape.MISSING, (), id="missing"),
        pytest.param({"content": []}, Shape.PARTS, (), id="no parts"),
        pytest.param({"content": 12}, Shape.OTHER, (Opaque("number", 2),), id="number"),
        pytest.param({"content": {"a": 1}}, Shape.OTHER, (Opaque("object", 7),), id="object"),
        pytest.param({"content": ["a", None]}, Shape.PARTS, (Opaque("string", 3), Opaque("null", 4)), id="no objects"),
    ],
)
def test_contents_keep_their_shape(message: dict, shape: Shape, parts: tuple) -> None:
    found = read({"role": "user"} | message)
    assert (found.shape, found.parts) == (shape, parts)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param({"type": "text", "text": "t"}, Text("t"), id="text"),
        pytest.param({"type": "input_text", "text": "t"}, Text("t"), id="input_text"),
        pytest.param({"type": "text", "text": 1}, Opaque("text", 24), id="text that is a number"),
        pytest.param({"type": "image_url", "image_url": {"url": "u", "detail": "low"}}, Image("u", "low"), id="image"),
        pytest.param({"type": "image_url", "image_url": "u"}, Image("u", None), id="image as a string"),
        pytest.param({"type": "input_image", "image_url": "u", "detail": "high"}, Image("u", "high"), id="input_image"),
        pytest.param({"type": "image_url", "image_url": None}, Opaque("image_url", 37), id="image null"),
        pytest.param(
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
            Image("data:image/png;base64,AA", None),
            id="image source",
        ),
        pytest.param(
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, Audio(4, "wav"), id="audio"
        ),
        pytest.param({"type": "file", "file": {"file_data": "AAAA", "filename": "f"}}, File(4, "f"), id="file"),
        pytest.param({"type": "file", "file": {"file_id": "id"}}, File(0, ""), id="file by id"),
        pytest.param({"type": "brand_new", "x": 1}, Opaque("brand_new", 26), id="unknown"),
        pytest.param({"type": ["odd"]}, Opaque("object", 16), id="type no string"),
    ],
)
def test_parts_are_known_by_their_type(part: dict, expected: object) -> None:
    assert read({"role": "user", "content": [part]}).parts == (expected,)


def test_opaque_parts_may_hold_numbers_beyond_any_range() -> None:
    raw = b'{"role":"user","content":[{"type":"x","n":1180591620717411303424,"f":1e400}]}'
    (part,) = read_message(raw, digest(raw)).parts
    assert isinstance(part, Opaque)
    assert part.type == "x"


def test_calls_of_every_kind_are_read() -> None:
    function = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    parsed = {"id": "b", "function": {"name": "g", "arguments": {"x": 1}}}
    custom = {"id": "c", "type": "custom", "custom": {"name": "h", "input": "free text"}}
    message = read({"role": "assistant", "content": None, "tool_calls": [function, parsed, custom, {}, 3]})

    assert message.calls == (
        Call("a", "f", '{"x":1}'),
        Call("b", "g", '{"x":1}'),
        Call("c", "h", "free text", custom=True),
        Call("", "", ""),
    )
    assert not message.legacy_call


def test_the_legacy_call_is_the_last_of_the_calls() -> None:
    message = read({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}})
    assert (message.legacy_call, message.calls) == (True, (Call("", "f", "{}"),))
    assert not read({"role": "assistant", "content": "x", "function_call": None, "tool_calls": None}).calls


@pytest.mark.parametrize(
    ("message", "answers"),
    [
        pytest.param({"role": "tool", "tool_call_id": "a", "name": "f"}, "a", id="tool"),
        pytest.param({"role": "function", "name": "f"}, "f", id="function"),
        pytest.param({"role": "tool"}, None, id="without id"),
        pytest.param({"role": "user", "name": "ann", "tool_call_id": "a"}, None, id="no result"),
    ],
)
def test_results_name_what_they_answer(message: dict, answers: str | None) -> None:
    assert read(message).answers == answers


def test_extras_hold_each_text_once() -> None:
    both = read({"role": "assistant", "content": "", "reasoning": "why", "reasoning_content": "why", "refusal": "no"})
    details = read({"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "so"}, {"x": 1}, 2]})
    summary = read({"role": "assistant", "reasoning_details": [{"text": "short"}, {"text": None, "summary": "long"}]})

    assert both.extras == ("no", "why")
    assert details.extras == ("so",)
    assert summary.extras == ("short", "long")
    assert read({"role": "assistant", "content": "a", "refusal": None}).extras == ()


def test_cache_control_marks_a_message_wherever_it_stands() -> None:
    marker = {"type": "ephemeral"}
    assert read({"role": "user", "content": [{"type": "text", "text": "a", "cache_control": marker}]}).marked
    assert read({"role": "user", "content": "a", "cache_control": marker}).marked
    assert not read({"role": "user", "content": "cache_control"}).marked
    assert not read({"role": "user", "content": "a", "cache_control": None}).marked


def test_text_that_is_no_utf8_is_readable_and_digests_tell_bytes_apart() -> None:
    one, other = b'{"role":"user","content":"a\xff"}', b'{"role":"user","content":"a\xfe"}'
    first, second = (read_message(raw, digest(raw)) for raw in (one, other))

    assert first.text == second.text == "a\ufffd"
    assert first.digest != second.digest
    assert len(first.digest) == 16


@pytest.mark.parametrize(
    ("raw", "shape", "parts"),
    [
        pytest.param(b"null", Shape.OTHER, (Opaque("null", 4),), id="null"),
        pytest.param(b'"hello"', Shape.OTHER, (Opaque("string", 7),), id="string"),
        pytest.param(b'[{"role":"user"}]', Shape.OTHER, (Opaque("array", 17),), id="list"),
        pytest.param(b"{}", Shape.MISSING, (), id="nothing in it"),
        pytest.param(b'{"content":"hello"}', Shape.STRING, (Text("hello"),), id="no role"),
        pytest.param(b'{"role":7,"content":["x"]}', Shape.PARTS, (Opaque("string", 3),), id="a number for a role"),
    ],
)
def test_what_states_no_role_is_of_an_unknown_one(raw: bytes, shape: Shape, parts: tuple) -> None:
    found = read_message(raw, digest(raw))

    assert (found.role, found.shape, found.parts, found.size) == (UNKNOWN, shape, parts, len(raw))
    assert len(found.canonical) == 16


PLAIN = st.sampled_from(
    [
        b'{"role":"user","content":%b}',
        b'{ "role" : "assistant" ,\n "content" :\t%b }',
        b'{"role":"tool","content":%b}',
        b'{"role":"system","content":%b,"content":"again"}',
        b'{"role":"user","content":%b,"name":"n"}',
        b'{"content":%b,"role":"user"}',
        b'{"role":"us\\u0065r","content":%b}',
    ]
)
TEXTS = st.one_of(
    st.text(max_size=20).map(lambda text: json.dumps(text).encode()),
    st.text(max_size=20).map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")),
    st.sampled_from(
        [b'""', b'"\\ud83d"', b'"\xff"', b'"\\u0061"', b"null", b"[]", b"1", b'" a" , "b": " "', b'{"a":"b"}']
    ),
)


@given(PLAIN, TEXTS)
def test_a_plain_message_is_read_as_any_other_would_be(shape: bytes, text: bytes) -> None:
    raw = shape % text

    def read() -> Message | type[Exception]:
        try:
            return read_message(raw, digest(raw))
        except rawjson.RawJsonError as error:
            return type(error)

    quick = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_plain", lambda raw, key: None)
        assert quick == read()
