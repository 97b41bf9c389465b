"""A request that goes on from one that was read before is read as if it were the first, only sooner."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import conversations, wire
from proxy.conversations import identity
from proxy.pipeline import counted, uses
from proxy.tokens import Cache, counter
from proxy.wire import NotChat
from proxy.wire.grouping import first_of, group
from proxy.wire.history import History
from proxy.wire.memo import Memo
from tests.proxy.held import bytes_of

LONG = "The tide turns at the quay, and a crane lifts what its manifest names. " * 20

TEXTS = st.one_of(st.sampled_from(("", "Yes.", LONG, "\ud83d", 'a "b" \\ {[]}', "你好")), st.text(max_size=12))
CALL = st.builds(
    lambda name, id_: {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}},
    st.sampled_from(("find", "read")),
    st.sampled_from(("call_0", "call_1", "")),
)
MESSAGES = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(("user", "assistant", "system")), TEXTS
    ),
    st.builds(
        lambda calls: {"role": "assistant", "content": None, "tool_calls": calls},
        st.lists(CALL, min_size=1, max_size=2),
    ),
    st.builds(
        lambda id_: {"role": "tool", "tool_call_id": id_, "content": LONG}, st.sampled_from(("call_0", "call_1", ""))
    ),
    st.just({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}),
    st.sampled_from(({"content": "no role"}, "no object", {"role": "function", "name": "find", "content": "x"})),
)
BEFORE = st.sampled_from(('"model":"gpt-4o",', '"model":"m","stream":true,', "", '"messages":[],', '"max_tokens":9,'))
AFTER = st.sampled_from(("", ',"stream":true', ',"tools":[{"file":1}]', ',"model":"b"', ',"messages":[]', ',"x":{'))
COMMAS = st.sampled_from((",", " , ", ",\n"))
ENDS = st.sampled_from(("]", " ]", ",]", "", "}"))


def body(before: str, messages: list[Any], comma: str, end: str, after: str) -> bytes:
    """A request, which may be none that can be read."""
    return ("{" + before + '"messages":[' + comma.join(map(json.dumps, messages)) + end + after + "}").encode()


BODIES = st.builds(body, BEFORE, st.lists(MESSAGES, min_size=1, max_size=9), COMMAS, ENDS, AFTER)


def look(content: bytes, history: History | None) -> Any:
    """What a body says of itself, or why it does not."""
    try:
        peek = wire.peek(content, history)
    except NotChat as error:
        return error.reason
    return peek, list(peek.fields.items())


def read(content: bytes, history: History | None) -> Any:
    """What is read of a body, or why it is not."""
    try:
        chat = wire.parse(content, Memo(), history)
    except NotChat as error:
        return error.reason
    return chat, list(chat.fields.items()), group(chat.messages) == chat.groups


@settings(max_examples=150, deadline=None)
@given(
    before=BEFORE,
    comma=COMMAS,
    messages=st.lists(MESSAGES, min_size=3, max_size=14),
    turns=st.lists(st.tuples(st.integers(0, 14), st.lists(MESSAGES, max_size=3), ENDS, AFTER), min_size=1, max_size=6),
    stray=BODIES,
)
def test_what_is_read_does_not_depend_on_what_was_read_before(
    before: str, comma: str, messages: list[Any], turns: list[tuple[int, list[Any], str, str]], stray: bytes
) -> None:
    """Extensions, edits in the middle, other fields and spacing, and bodies that end too soon."""
    history = History()
    wire_bodies = [body(before, messages, comma, "]", ""), stray]
    for kept, more, end, after in turns:
        messages = [*messages[:kept], *more]
        wire_bodies.append(body(before, messages, comma, end, after))
    for content in (*wire_bodies, *wire_bodies[:1]):
        assert look(content, history) == look(content, None)
        assert read(content, history) == read(content, None)


def talk(length: int, name: str = "a") -> list[dict[str, str]]:
    """A conversation of `length` messages."""
    return [{"role": "assistant" if i % 2 else "user", "content": f"{name}{i}: {LONG}"} for i in range(length)]


def request(messages: list[Any]) -> bytes:
    """A request with these messages."""
    return json.dumps({"model": "gpt-4o", "messages": messages, "stream": False}).encode()


@pytest.mark.parametrize(
    ("second", "shared"),
    [
        pytest.param(talk(12), 10, id="goes on"),
        pytest.param(talk(10), 10, id="the same"),
        pytest.param(talk(7), 7, id="taken back"),
        pytest.param([*talk(6), *talk(6, "b")], 6, id="edited"),
        pytest.param(talk(10, "b"), 0, id="another"),
    ],
)
def test_what_two_requests_share_is_found(second: list[Any], shared: int) -> None:
    history = History()
    first = wire.parse(request(talk(10)), Memo(), history)
    found = history.find(request(second))
    assert (len(found.messages) if found else 0) == shared
    if found is not None:
        assert all(a is b for a, b in zip(found.messages, first.messages, strict=False))


def test_messages_that_are_shared_are_not_read_again() -> None:
    history = History()
    first = wire.parse(request(talk(20)), None, history)
    second = wire.parse(request(talk(22)), None, history)  # without a memo
    assert all(a is b for a, b in zip(first.messages, second.messages, strict=False))
    assert wire.peek(request(talk(24)), history).fresh < len(request(talk(4)))


def test_a_conversation_takes_the_room_of_one_request() -> None:
    history = History()
    for length in range(4, 40):
        wire.parse(request(talk(length)), None, history)
    assert len(history) == 1
    wire.parse(request(talk(39, "b")), None, history)
    assert len(history) == 2


def test_what_is_kept_is_bounded() -> None:
    history = History(max_bytes=2**20)
    for number in range(60):
        wire.parse(request(talk(12, f"{number} ")), None, history)
        assert history.bytes_held <= 2**20
    assert 1 < len(history) < 60
    assert history.find(request(talk(14, "0 "))) is None
    assert history.find(request(talk(14, "59 "))) is not None
    with pytest.raises(ValueError, match=r"max_bytes: must be at least 0 .*, got -1"):
        History(max_bytes=-1)


def test_one_that_is_huge_pushes_nothing_out() -> None:
    history = History(max_bytes=2**20)
    wire.parse(request(talk(12)), None, history)
    wire.parse(request(talk(400, "b")), None, history)
    assert history.find(request(talk(12))) is not None
    assert history.find(request(talk(400, "b"))) is None


@settings(max_examples=200, deadline=None)
@given(messages=st.lists(MESSAGES.filter(lambda m: isinstance(m, dict) and "role" in m), max_size=14), data=st.data())
def test_groups_go_on_from_where_they_ended(messages: list[Any], data: st.DataObject) -> None:
    if not messages:
        return
    read_ = wire.parse(request(messages)).messages
    start = data.draw(st.integers(0, len(messages)))
    before = group(read_[:start])
    assert group(read_, before, start) == group(read_)
    assert first_of(group(read_), start, len(read_)) == before


def test_what_is_carried_along_is_that_of_the_shared_messages() -> None:
    history = History()
    root = identity.root(b"salt", "main")
    first = wire.parse(request(talk(10)), None, history)
    first.carry.put("chain", identity.chain(root, [m.canonical for m in first.messages]))
    second = wire.parse(request([*talk(6), *talk(6, "b")]), None, history)
    digests = [m.canonical for m in second.messages]
    known = second.carry.get("chain")
    assert len(known) == 6
    assert identity.chain(root, digests, known) == identity.chain(root, digests)
    longer = second.followed(first.messages[0], second.groups)
    longer.carry.put("chain", ())
    assert second.carry.get("chain") == known


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"]}", id="nothing more"),
        pytest.param(b' , {"role":"user","content":"x"} ] , "n":1 }', id="spaces"),
        pytest.param(b'],"model":"other"}', id="a key of before"),
        pytest.param(b'],"mod\\u0065l":"other"}', id="a key of before, escaped"),
        pytest.param(b'],"messages":[]}', id="messages twice"),
        pytest.param(b'],"mess\\u0061ges":[]}', id="messages twice, escaped"),
        pytest.param(b'],"n":1,"n":1}', id="a key twice"),
        pytest.param(b",]}", id="a comma too many"),
        pytest.param(b'{"role":"user","content":"x"}]}', id="a comma too few"),
        pytest.param(b"]} ]", id="more behind it"),
        pytest.param(b"]", id="cut off"),
        pytest.param(b"", id="cut off within messages"),
        pytest.param(b'],"x":' + b"[" * 5000 + b"]" * 5000 + b"}", id="too deep"),
        pytest.param(b',{"role":"user","content":"\\ud83d"}],"x":"\\udc00"}', id="half an emoji"),
        pytest.param(b',{"role":"user","content":"\xff\xfe"}]}', id="no utf-8"),
        pytest.param(b',{"role":"user","role":"x","content":"a"}]}', id="a message with a key twice"),
        pytest.param(b',{"role":"user","content":[{"type":"file"}]}]}', id="media"),
        pytest.param(b',{"role":"user","content":[{"typ\\u0065":"file"}]}]}', id="a hidden letter"),
        pytest.param(b',7],"stream":true}', id="no object"),
    ],
)
@pytest.mark.parametrize("media", [False, True])
def test_what_follows_is_judged_as_ever(rest: bytes, media: bool) -> None:
    history = History()
    messages: list[Any] = talk(8)
    if media:
        messages[3] = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA"}}]}
    start = b'{"model":"gpt-4o","messages":' + json.dumps(messages).encode()[:-1]
    wire.parse(start + b"]}", None, history)
    found = history.find(start + rest)
    assert found is not None
    assert len(found.messages) == 8
    assert look(start + rest, history) == look(start + rest, None)
    assert read(start + rest, history) == read(start + rest, None)


TIDES = "The tide turns at the quay, and a crane lifts what its manifest names. " * 4
SAID = {
    "English": TIDES,
    "short": "Aye.",
    "Chinese": "潮水今天很高，我们必须等到下午才能进港卸货。" * 10,
    "a smile in ASCII": f"🙂 {TIDES}",
    "one part of many": "é" * 300,
}
TOOLS = [{"type": "function", "function": {"name": f"f{n}", "parameters": {"a": {"b": [n, {}]}}}} for n in range(200)]


@pytest.mark.parametrize("length", [pytest.param(40, id="few"), pytest.param(700, id="many")])
@pytest.mark.parametrize("said", SAID)
def test_what_is_held_is_counted_with_all_that_is_carried_along(said: str, length: int) -> None:
    history, counts = History(2**30), Cache()
    for number in range(700 // length):
        texts = (f"{SAID[said]} {number}.{n} {n * n}" * (1 + n % 2) for n in range(length))
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        content = json.dumps({"model": "a", "tools": TOOLS, "messages": messages}, ensure_ascii=False).encode()
        chat = wire.parse(content, None, history)
        for model in ("gpt-4o", "mistral-large"):
            counted.tokens(chat, counter(model), counts)
        counted.guesses(chat), counted.openings(chat), counted.unknown(chat)
        root = identity.root(b"salt", "main")
        conversations.chained(counted.canonicals(chat), root, chat.carry)
        uses.said(chat)
        del chat

    taken = bytes_of(history)
    assert taken <= history.bytes_held <= 2 * taken


def test_what_is_carried_along_makes_room() -> None:
    history = History(max_bytes=2**20)
    chats = [wire.parse(request(talk(12, f"{number} ")), None, history) for number in range(12)]
    assert len(history) == 12
    for chat in chats[6:]:
        chat.carry.put("much", [b"x" * 8000] * 12, 12 * 8000)
        assert history.bytes_held <= 2**20
    assert 1 < len(history) < 12
    assert history.find(request(talk(14, "0 "))) is None
    assert history.find(request(talk(14, "11 "))) is not None


def test_values_that_are_taken_over_are_counted_once() -> None:
    history = History(2**30)
    for length in range(8, 40):
        chat = wire.parse(request(talk(length)), None, history)
        known = chat.carry.get("n")
        chat.carry.put("n", [*known, *(bytes(1000) for _ in range(length - len(known)))], 1000 * (length - len(known)))
        assert chat.carry.size == pytest.approx(1050 * length, rel=0.05)
