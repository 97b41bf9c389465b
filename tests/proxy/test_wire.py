"""Bodies become values without losing a byte; what is no chat request is said to be none, for one stable reason."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy import wire
from proxy.wire import NotChat, Reason
from proxy.wire.chat import Message, Shape, Text
from proxy.wire.memo import Memo
from tests.proxy.chat_bodies import bodies

USER = b'{"role":"user","content":"hi"}'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", Reason.NOT_JSON, id="empty body"),
        pytest.param(b"\xef\xbb\xbf{}", Reason.NOT_JSON, id="byte order mark"),
        pytest.param(b'{"messages":[%b]' % USER, Reason.NOT_JSON, id="cut off"),
        pytest.param(b"[%b]" % USER, Reason.NO_MESSAGES, id="a bare list"),
        pytest.param(b'{"input":"hi"}', Reason.NO_MESSAGES, id="messages missing"),
        pytest.param(b'{"messages":null}', Reason.NO_MESSAGES, id="messages null"),
        pytest.param(b'{"messages":{}}', Reason.NO_MESSAGES, id="messages an object"),
        pytest.param(b'{"messages": [ ] }', Reason.NO_MESSAGES, id="messages empty"),
        pytest.param(b'{"messages":[%b],"messages":[]}' % USER, Reason.AMBIGUOUS_JSON, id="messages twice"),
        pytest.param(b'{"messages":[%b],"mod\\u0065l":1,"model":1}' % USER, Reason.AMBIGUOUS_JSON, id="escaped"),
        pytest.param(b'{"messages":[{"role":"user","role":"system"}]}', Reason.AMBIGUOUS_JSON, id="role twice"),
        pytest.param(b'{"messages":[{"role":"a","r\\u006fle":"b"}]}', Reason.AMBIGUOUS_JSON, id="role escaped"),
        pytest.param(
            b'{"messages":[{"role":"tool","tool_call_id":"a","tool_call_id":"b"}]}',
            Reason.AMBIGUOUS_JSON,
            id="id twice",
        ),
        pytest.param(b'{"x":%b,"messages":[]}' % (b"[" * 9000 + b"]" * 9000), Reason.TOO_DEEP, id="deep elsewhere"),
        pytest.param(
            b'{"messages":[{"role":"user","x":%b}]}' % (b"[" * 300 + b"]" * 300), Reason.TOO_DEEP, id="deep message"
        ),
    ],
)
def test_what_is_no_chat_request_is_refused_with_a_reason(body: bytes, reason: Reason) -> None:
    with pytest.raises(NotChat) as caught:
        wire.parse(body)
    assert caught.value.reason is reason


def test_a_key_named_twice_in_a_text_or_deeper_down_is_no_duplicate() -> None:
    message = {
        "role": "user",
        "content": [{"type": "x", "role": 1, "content": 2}, {"type": "text", "text": '"role":"role" "content"'}],
    }
    chat = wire.parse(json.dumps({"messages": [message]}).encode())
    assert chat.messages[0].parts[1] == Text('"role":"role" "content"')


@given(body=bodies())
@settings(max_examples=150, deadline=None)
def test_every_message_and_field_keeps_its_own_bytes(body) -> None:
    chat = wire.parse(body.raw)

    assert chat.body is body.raw
    assert tuple(chat.raw(index) for index in range(len(chat.messages))) == body.messages
    assert {name: chat.field(name) for name in chat.fields} == body.fields
    assert chat.field("no such field") is None
    assert [message.size for message in chat.messages] == [len(raw) for raw in body.messages]
    assert all(earlier.end < later.start for earlier, later in pairwise(chat.spans))
    for message, value in zip(chat.messages, json.loads(body.raw)["messages"], strict=True):
        _agrees(message, value)


def _agrees(message: Message, value: dict) -> None:
    content = value.get("content")
    assert message.role == value["role"]
    assert (message.shape is Shape.MISSING) == ("content" not in value)
    assert (message.shape is Shape.STRING) == isinstance(content, str)
    assert len(message.parts) == (len(content) if isinstance(content, list) else content is not None)
    assert len(message.calls) == len(value.get("tool_calls", ()))
    if isinstance(content, str):
        assert message.parts == (Text(content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")),)


@given(body=bodies(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_memo_changes_nothing_but_the_work(body, data: st.DataObject) -> None:
    memo = Memo(max_bytes=data.draw(st.sampled_from([0, 5000, 2**20])))
    first, second = wire.parse(body.raw, memo), wire.parse(body.raw, memo)

    assert first == second == wire.parse(body.raw)


def test_a_hot_conversation_decodes_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    read = wire.read_message
    monkeypatch.setattr(wire, "read_message", lambda raw, key: decoded.append(raw) or read(raw, key))
    memo = Memo()
    later = b'{"role":"assistant","content":"hello"}'

    wire.parse(b'{"messages":[%b]}' % USER, memo)
    wire.parse(b'{"model":"m","messages":[%b, %b]}' % (USER, later), memo)

    assert decoded == [USER, later]


@given(body=st.one_of(st.binary(max_size=60), st.text('{}[]":,\\ud83role messages01e', max_size=60).map(str.encode)))
@example(b'{"messages":[{"role":"\xff"}]}')
@example(b'{"messages":[{"role":"user","content":"\xed\xa0\xbd"}]}')
@example(b'{"messages":[{"role":"user","\xff":1}]}')
@settings(max_examples=400, deadline=None)
def test_reading_is_total(body: bytes) -> None:
    for take in (wire.parse, wire.peek):
        try:
            take(body)
        except NotChat as error:
            assert error.reason in Reason  # noqa: PT017 - either outcome is right
    wire.peek_model(body)


@given(body=bodies(max_messages=3), data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_damaged_body_is_refused_or_read_but_never_crashes(body, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(body.raw) - 1))
    damaged = body.raw[:at] + data.draw(st.binary(max_size=2)) + body.raw[at + 1 :]
    try:
        chat = wire.parse(damaged)
    except NotChat:
        return
    assert [chat.raw(i)[:1] + chat.raw(i)[-1:] for i in range(len(chat.messages))] == [b"{}"] * len(chat.messages)


def test_a_body_cut_off_at_any_byte_is_not_json() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a\\ud83d\\u00e9"}]}, '
    body += b'{"role": "assistant", "content": null, "tool_calls": []}], "n": 1e400}'
    wire.parse(body)
    for end in range(len(body)):
        with pytest.raises(NotChat) as caught:
            wire.parse(body[:end])
        assert caught.value.reason is Reason.NOT_JSON, body[:end]


@given(body=bodies())
@settings(max_examples=80, deadline=None)
def test_a_peek_agrees_with_the_whole(body) -> None:
    peek, chat = wire.peek(body.raw), wire.parse(body.raw)

    assert peek.model == wire.peek_model(body.raw) == chat.settings.model
    assert (peek.stream, peek.output_limits) == (chat.settings.stream, chat.settings.output_limits)
    assert peek.media or not any(b'"image_url"' in raw or b'"video_url"' in raw for raw in body.messages)


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        pytest.param({}, (), id="none"),
        pytest.param({"max_tokens": 5, "max_completion_tokens": 7}, (7, 5), id="both"),
        pytest.param({"reasoning": {"max_tokens": 9}}, (9,), id="OpenRouter"),
        pytest.param({"reasoning": {"effort": "high"}, "thinking": None}, (), id="effort only"),
        pytest.param({"thinking": {"type": "enabled", "budget_tokens": 8}}, (8,), id="Anthropic"),
        pytest.param({"thinking_budget": 3}, (3,), id="Qwen"),
        pytest.param({"extra_body": {"google": {"thinking_config": {"thinking_budget": 4}}}}, (4,), id="Gemini"),
        pytest.param({"max_tokens": 0}, (0,), id="zero"),
        pytest.param({"max_tokens": -1, "thinking_budget": True, "max_completion_tokens": "9"}, (), id="no limits"),
        pytest.param({"max_tokens": 1.0, "thinking": [1], "extra_body": 3}, (), id="other types"),
        pytest.param({"max_tokens": 2**70}, (2**70,), id="over 64 bits"),
    ],
)
def test_output_limits_are_found_under_every_name(fields: dict, limits: tuple[int, ...]) -> None:
    body = json.dumps({**fields, "messages": [{"role": "user", "content": "hi"}]}).encode()
    assert wire.parse(body).settings.output_limits == limits
    assert wire.peek(body).output_limits == limits


@pytest.mark.parametrize(
    ("content", "media"),
    [
        pytest.param('talk of "image_url" and file', False, id="only talked about"),
        pytest.param([{"type": "text", "text": "no"}], False, id="text part"),
        pytest.param([{"type": "image_url", "image_url": {"url": "http://h/i.png"}}], True, id="image"),
        pytest.param([{"type": "file", "file": {"file_id": "f"}}], True, id="file"),
        pytest.param([{"type": "input_audio", "input_audio": {}}], True, id="audio"),
        pytest.param([{"type": "video_url", "video_url": {"url": "u"}}], True, id="video"),
    ],
)
def test_media_are_noticed_without_reading_messages(content: object, media: bool) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    assert wire.peek(body).media is media
    assert wire.peek(body.replace(b'"image_url"', b'"im\\u0061ge_url"')).media is media


def test_settings_are_decoded_and_odd_ones_count_as_absent() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"enum": ["x" * 600]}}}]
    body = {"model": "m", "stream": True, "tools": tools, "functions": [{"name": "g"}], "tool_choice": "auto"}
    body |= {"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "hi"}]}
    memo = Memo()

    for _ in range(2):
        found = wire.parse(json.dumps(body).encode(), memo).settings
        assert (found.model, found.stream, found.tools, found.functions) == ("m", True, tuple(tools), ({"name": "g"},))
        assert (found.tool_choice, found.response_format) == ("auto", {"type": "json_object"})

    odd = wire.parse(b'{"model":1,"stream":"yes","tools":{},"functions":null,"messages":[%b]}' % USER).settings
    assert (odd.model, odd.stream, odd.tools, odd.functions) == (None, False, (), ())


def test_a_setting_that_looks_like_a_message_is_not_taken_for_one() -> None:
    same = {"role": "user", "content": "x" * 600}
    body = json.dumps({"response_format": same, "messages": [same]}).encode()
    memo = Memo()

    for _ in range(2):
        chat = wire.parse(body, memo)
        assert chat.settings.response_format == same
        assert chat.messages[0].parts == (Text("x" * 600),)


@pytest.mark.parametrize(("length", "known"), [(512, True), (513, False), (2_000_000, False)])
def test_a_name_too_long_for_a_model_is_none(length: int, known: bool) -> None:
    """Models are remembered by name, so many of them: clients could fill the memory with names."""
    body = b'{"model":"%b","messages":[%b]}' % (b"m" * length, USER)
    expected = "m" * length if known else None

    assert wire.peek(body).model == wire.parse(body).settings.model == wire.peek_model(body) == expected
