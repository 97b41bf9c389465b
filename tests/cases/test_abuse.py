"""Abuse: targets, header fields, framing and bodies that nobody should send (E12, and fuzzing).

No request gets a 500, whatever it is made of, and what is not trimmed arrives as it was sent.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import ClientError
from proxy.offline import NotChatError, trim_body
from proxy.route import OnOverflow
from tests.cases.histories import histories
from tests.cases.shapes import POLICIES
from tests.fakes.server import connected
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import Message, body, dialogue, route, user
from tests.proxy.proxied import Start, post
from tests.validator import worsened

LARGE, SMALL = "defaults: {window: 128000}", "defaults: {window: 1000, reserve_output: 0, policy: fifo}"


@pytest.mark.parametrize(
    "target",
    [
        *(b"//v1//chat/completions", b"/chat/completions", b"/v1%2Fchat/completions", b"/v1/chat%2Fcompletions"),
        *(
            b"/%76%31/chat/completions",
            b"/v1/chat/completions?",
            b"/v1/chat/completions?a=%00&b=\xc3\xa9",
            b"/v1/chat/completions;x",
        ),
        *(
            b"/v1/chat/completions#f",
            b"/\xff/chat/completions",
            b"/v1/chat/completions%20",
            b"/v9/deep/er/chat/completions",
        ),
        *(b"http://other.test/v1/chat/completions", b"/v1/../v1/chat/completions", b"/v1/%2e%2e/chat/completions"),
        *(b"/" + b"a" * 5000 + b"/chat/completions", b"/v1/chat/completions?" + b"q" * 9000, b"*"),
    ],
    ids=lambda target: ascii(target[:40]),
)
async def test_odd_targets_are_sent_on_or_refused_in_the_open(
    start: Start, upstream: FakeUpstream, target: bytes
) -> None:
    content = body(dialogue(20))
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", target, ("content-type", "application/json"), body=content)
        status, fields = await raw.head()

    assert status in (200, 400, 404, 414)
    if status == 200:
        sent = upstream.last.json["messages"]
        assert sent == dialogue(20) or ((b"x-trimtab-action", b"trimmed") in fields and len(sent) < 42)
    else:
        assert upstream.exchanges == []


FIELDS: dict[str, tuple[list[tuple[str, str]], int]] = {
    "empty ones": ([(f"x-trimtab-{name}", "") for name in ("pin", "session", "bypass", "policy", "budget")], 200),
    "blank pin": ([("x-trimtab-pin", "  ")], 200),
    "pins twice": ([("x-trimtab-pin", "3"), ("x-trimtab-pin", "-5")], 200),
    "pin with spaces": ([("x-trimtab-pin", " 3 , -5 ")], 200),
    "comma pin": ([("x-trimtab-pin", "3,")], 400),
    "huge pin": ([("x-trimtab-pin", "9" * 5000)], 400),
    "far pin": ([("x-trimtab-pin", "1000000000000000000000")], 400),
    "fraction": ([("x-trimtab-pin", "1.5")], 400),
    "underscore": ([("x-trimtab-pin", "1_0")], 400),
    "superscript": ([("x-trimtab-pin", "\u00b2")], 400),
    "policy twice": ([("x-trimtab-policy", "fifo"), ("x-trimtab-policy", "lru")], 400),
    "no policy": ([("x-trimtab-policy", "\u00ff\u00fe")], 400),
    "policy with options": ([("x-trimtab-policy", "{name: fifo}")], 400),
    "budget zero": ([("x-trimtab-budget", "0")], 400),
    "budget minus": ([("x-trimtab-budget", "-5")], 400),
    "budget huge": ([("x-trimtab-budget", "9" * 5000)], 400),
    "budget one": ([("x-trimtab-budget", "1")], 200),
    "session": ([("x-trimtab-session", "\u00e9\u00ff" * 500)], 200),
    "sessions": ([("x-trimtab-session", "a"), ("x-trimtab-session", "b")], 200),
    "bypass twice": ([("x-trimtab-bypass", "1"), ("x-trimtab-bypass", "1")], 200),
    "unknown": ([("x-trimtab-frobnicate", "1")], 200),
    "keys": ([("authorization", "Bearer \u00ff"), ("authorization", "Basic x"), ("api-key", "")], 200),
    "jwt": ([("authorization", "Bearer a.b.c")], 200),
    "deep jwt": ([("authorization", "Bearer e30.W1tbW1tbW1tbW1tbW10.")], 200),
    "types": ([("content-type", "text/\u00e9; charset=\u00ff"), ("content-type", "")], 200),
    "expect": ([("expect", "100-continue")], 200),
    "odd expect": ([("expect", "200-ok")], 200),
    "many": ([(f"x-{n}", "v" * 20) for n in range(90)], 200),
    "large": ([("x-large", "v" * 6000)], 200),
}


@pytest.mark.parametrize("odd", FIELDS)
async def test_odd_header_fields_are_followed_ignored_or_refused(
    start: Start, upstream: FakeUpstream, odd: str
) -> None:
    """E12: what is refused is refused in OpenAI's shape, and none of trimtab's own fields goes upstream."""
    fields, expected = FIELDS[odd]
    client = await start(SMALL.replace("policy:", "allow_overrides: true, policy:"))
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", b"/v1/chat/completions", ("Connection", "close"), *fields, body=body(dialogue(20)))
        status, _ = await raw.head()
        if status == 100:
            status, _ = await raw.head()
        rest = await raw.rest()

    assert status == expected
    if status == 400:
        assert upstream.exchanges == []
        error = json.loads(rest[rest.index(b"{") : rest.rindex(b"}") + 1])["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] in ("invalid_header", "invalid_pin")
        assert len(error["message"]) < 600
    else:
        assert [name for name, _ in upstream.last.headers if name.startswith(b"x-trimtab")] == []


async def test_pipelined_requests_are_answered_in_order(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    contents = [body([user("first")]), body(dialogue(20)), body([user("third")])]
    async with connected(str(client.base_url).rstrip("/")) as raw:
        for content in contents:
            await raw.request("POST", b"/v1/chat/completions", body=content)
        for _ in contents:
            status, fields = await raw.head()
            assert status == 200
            await raw.reader.readexactly(int(dict(fields).get(b"content-length", b"0")))

    assert [len(exchange.json["messages"]) < 42 for exchange in upstream.exchanges] == [True] * 3
    assert [exchange.json["messages"][-1]["content"] for exchange in upstream.exchanges] == [
        "first",
        dialogue(20)[-1]["content"],
        "third",
    ]


async def test_a_body_that_ends_too_soon_is_sent_to_nobody(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n{")
    assert (await post(client, body([user("q")]))).status_code == 200
    assert len(upstream.exchanges) == 1


FRAGMENTS = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b",",
        b":",
        b"null",
        b'"role"',
        b'"messages"',
        b"\\ud83d",
        b"\xff",
        b"\x00",
        b"1e999",
        b"[" * 300,
    ]
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A valid body with a few of its bytes cut out, doubled or replaced."""
    for _ in range(draw(st.integers(0, 3))):
        at, size = draw(st.integers(0, len(content))), draw(st.integers(0, 40))
        middle = draw(st.one_of(FRAGMENTS, st.binary(max_size=4), st.just(content[at : at + size] * 2)))
        content = content[:at] + middle + content[at + size :]
    return content


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=histories(min_size=1, max_size=5), data=st.data(), policy=st.sampled_from(POLICIES))
def test_a_damaged_body_is_refused_or_comes_out_whole(
    messages: list[Message], data: st.DataObject, policy: str
) -> None:
    """`trimtab trim` on bodies grown from valid ones: an exit with a reason, the same bytes, or a valid request."""
    content = data.draw(damaged(body(messages)))
    way = data.draw(st.sampled_from(list(OnOverflow)))
    try:
        trimmed = trim_body(content, route(policy, window=data.draw(st.integers(1, 400)), on_overflow=way))
    except (NotChatError, ClientError):
        return
    assert trimmed.record["faults"] == []
    if trimmed.body != content:
        assert worsened_or_notes(content, trimmed.body, trimmed.record) == []


def worsened_or_notes(content: bytes, sent: bytes, record: dict[str, Any]) -> list[str]:
    rows = record["slots"]
    shrunk = frozenset(i for row in rows if row["action"] == "shrink" for i in row["messages"])
    read = [json.loads(each.decode("utf-8", "replace"))["messages"] for each in (content, sent)]
    touched = frozenset(i for i in shrunk if read[0][i] not in read[1])
    return worsened(read[0], read[1], touched)


BODIES = [b"", b"{}", b"[]", b"null", b'"x"', b"7", b'{"messages":{}}', b'{"messages":[]}', b'{"messages":[null]}']
BODIES += [b'{"messages":[{}]}', b'{"messages":[{"role":null}]}', b'{"messages":"x"}', b'{"messages":[[[]]]}']
BODIES += [b"[" * 100_000, b'{"a":' * 50_000, b'{"messages":[' + b"[" * 999 + b"]" * 999 + b"]}", b"\xff\xfe{\x00}\x00"]
BODIES += [
    b'{"model":["x"],"messages":[{"role":"user","content":"x"}]}',
    b'{"model":"gpt-4o","messages":[{"role":"user"}],"tools":7}',
]
BODIES += [
    b'{"model":"gpt-4o","tools":[null,{"type":"function"}],"response_format":[],"messages":[{"role":"user","content":"%b"}]}'
    % (b"x " * 3000)
]
BODIES += [
    b"9" * 70_000,
    b'{"messages":[{"role":"user","content":%b}]}' % (b"9" * 5000),
    b" " * 9000,
    b'{"\\u006dessages":[{"role":"user"}]}',
]


@pytest.mark.parametrize("content", BODIES, ids=lambda content: ascii(content[:40]))
async def test_whatever_the_body_is_it_arrives(start: Start, upstream: FakeUpstream, content: bytes) -> None:
    """What is no chat request is the upstream's to refuse."""
    client = await start("defaults: {window: 300, reserve_output: 0, policy: fifo, thresholds: {warn: 0.0}}")

    response = await post(client, content)

    assert response.status_code == 200
    assert bytes(upstream.last.body) == content
    assert "x-trimtab-faults" not in response.headers
