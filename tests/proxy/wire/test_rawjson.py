"""Positions are exact for whatever spacing and escapes; what one parser refuses and another takes is still read."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire import rawjson
from proxy.wire.rawjson import DuplicateKeyError, MalformedError, Span, TooDeepError, WrongTypeError
from tests.proxy.chat_bodies import VALUES, bodies, objects


@given(body=bodies())
@settings(max_examples=150, deadline=None)
def test_members_and_elements_stand_where_they_were_written(body) -> None:
    spans = rawjson.members(body.raw)
    assert {name: body.raw[start:end] for name, (start, end) in spans.items()} == body.fields
    assert list(spans) == list(body.fields)

    start, end = spans["messages"]
    found = rawjson.elements(body.raw[start:end], offset=start)
    assert tuple(body.raw[a:b] for a, b in found) == body.messages


@given(value=VALUES)
@settings(max_examples=150, deadline=None)
def test_read_agrees_with_the_json_module_but_for_lone_surrogates(value: str) -> None:
    def without_surrogates(found: object) -> object:
        text = json.dumps(found, ensure_ascii=False)
        return json.loads(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("���", "�"))

    assert rawjson.read(value.encode()) == without_surrogates(json.loads(value))


@given(members=st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1, max_size=3), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_repeated_key_is_always_found(members: dict[str, str], data: st.DataObject) -> None:
    text = data.draw(objects(members))
    again = data.draw(st.sampled_from(sorted(members)))
    value = data.draw(st.one_of(VALUES, st.just(members[again])))
    spelled = data.draw(st.sampled_from([f'"{again}"', f'"\\u{ord(again):04x}"']))
    front = data.draw(st.booleans())
    doubled = f"{{{spelled}:{value},{text[1:]}" if front else f"{text[:-1]},{spelled}:{value}}}"

    with pytest.raises(DuplicateKeyError):
        rawjson.members(doubled.encode())
    assert set(rawjson.values(doubled.encode())) == set(members)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"a":12,"a":1}', id="the last value begins the first"),
        pytest.param(b'{"a":1,"a":1}', id="the same value"),
        pytest.param(b'{"a":1,"b":{"c":2},"a":"0123456789"}', id="the last value is as long as up to an inner brace"),
        pytest.param(b'{"a":1,"a":[1,2,3,4,5,6,7,8,9,10]}', id="the last value is the longest"),
        pytest.param(b'{"":1,"":2}', id="empty key"),
    ],
)
def test_a_walk_that_could_go_astray_finds_the_repeated_key(raw: bytes) -> None:
    with pytest.raises(DuplicateKeyError, match="more than once"):
        rawjson.members(raw)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        pytest.param(b"", MalformedError, id="nothing"),
        pytest.param(b"\xef\xbb\xbf{}", MalformedError, id="byte order mark"),
        pytest.param(b'{"a":1}x', MalformedError, id="trailing text"),
        pytest.param(b'{"a":NaN}', MalformedError, id="NaN"),
        pytest.param(b'{"a":01}', MalformedError, id="leading zero"),
        pytest.param(b'{"a":"\\x"}', MalformedError, id="unknown escape"),
        pytest.param(b'{"a":"\\ud83"}', MalformedError, id="short escape"),
        pytest.param(b'{"a":1,}', MalformedError, id="trailing comma"),
        pytest.param(b"[1", MalformedError, id="cut off array"),
        pytest.param('{"a":1}'.encode("utf-16"), MalformedError, id="UTF-16"),
        pytest.param(b"[]", WrongTypeError, id="array"),
        pytest.param(b"null", WrongTypeError, id="null"),
        pytest.param(b'["\\ud83d"]', WrongTypeError, id="array with a lone surrogate"),
        pytest.param(b'{"a":' + b"[" * 9000 + b"]" * 9000 + b"}", TooDeepError, id="deep"),
        pytest.param(b'{"a":' + b"[" * 9000, TooDeepError, id="deep and cut off"),
        pytest.param(b'{"a":"\\ud83d","b":' + b"[" * 9000 + b"]" * 9000 + b"}", TooDeepError, id="deep and surrogate"),
    ],
)
def test_what_is_no_object_is_refused_with_its_reason(raw: bytes, error: type[Exception]) -> None:
    for take in (rawjson.members, rawjson.values):
        with pytest.raises(error):
            take(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(rb'"\ud83d"', "\ufffd", id="lone high"),
        pytest.param(rb'"\uDE00x"', "\ufffdx", id="lone low"),
        pytest.param(rb'"\ude00\ud83d"', "\ufffd\ufffd", id="the wrong way round"),
        pytest.param(rb'"\ud83d\ud83d\ude00"', "\ufffd😀", id="lone before a pair"),
        pytest.param(rb'"\\ud83d"', "\\ud83d", id="escaped backslash"),
        pytest.param(rb'"\\\ud83d"', "\\\ufffd", id="odd run of backslashes"),
        pytest.param(rb'"\\ud83d\ude00"', "\\ud83d\ufffd", id="only the low half is an escape"),
        pytest.param(b'"a\xffb"', "a\ufffdb", id="no UTF-8"),
        pytest.param(b"1e400", math.inf, id="huge float"),
        pytest.param(b"9" * 5000, math.inf, id="five thousand digits"),
        pytest.param(b"1180591620717411303424", 2**70, id="over 64 bits"),
    ],
)
def test_read_takes_what_strict_parsers_refuse(raw: bytes, expected: object) -> None:
    assert rawjson.read(raw) == expected
    assert rawjson.elements(b"[" + raw + b" , 1]")[0] == Span(1, 1 + len(raw))


def test_depth_counts_brackets_but_not_those_in_strings() -> None:
    assert not rawjson.deeper_than(3, b'[[["[[[[{{{{ \\" [[["]]]' + b" " * 9)
    assert rawjson.deeper_than(2, b'[[["[[[["]]]')
    assert not rawjson.deeper_than(2, b"[" + b",".join([b"{}"] * 500) + b"]")


def test_depth_is_limited_below_what_the_interpreter_can_do() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' * depth + b"1" + b"}" * depth

    rawjson.read(nested(rawjson.MAX_DEPTH))
    with pytest.raises(TooDeepError, match=str(rawjson.MAX_DEPTH)):
        rawjson.read(nested(rawjson.MAX_DEPTH + 1))


@given(text=st.text(st.characters(exclude_categories=[])))
@settings(max_examples=200, deadline=None)
def test_written_strings_are_valid_for_strict_parsers(text: str) -> None:
    written = json.loads(rawjson.write(text).decode("utf-8", "strict"))

    assert written == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def test_long_runs_take_linear_time() -> None:
    run = b'{"a":"' + b"\\\\" * 500_000 + b'\\ud83d","b":"' + b'\\"' * 500_000 + b'"}'
    assert list(rawjson.members(run)) == ["a", "b"]
    assert rawjson.deeper_than(5, b"[" * 10 + b'"' + b"\\\\" * 500_000)


def test_members_are_found_behind_a_key_that_is_no_utf_8() -> None:
    raw = b'{"tool_\x8a\xaa":"call_0", "content" : "caf\x81\xe9 \xe5\xa4\xb4"}'
    span = rawjson.members(raw)["content"]
    assert raw[span.start : span.end] == b'"caf\x81\xe9 \xe5\xa4\xb4"'
    assert rawjson.values(raw).keys() == {"tool_??", "content"}
