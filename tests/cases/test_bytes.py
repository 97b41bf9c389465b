"""Group C: bytes and caches (C02, C03, C05, C06, C08, C09)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.route import OnOverflow
from proxy.wire import parse
from tests.cases.histories import stamped
from tests.cases.shapes import calls, every_policy, result
from tests.cases.trimmed import trim, trim_bytes
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.chat_bodies import Body, bodies
from tests.proxy.dialogues import assistant, body, dialogue, route, system, user, words
from tests.proxy.proxied import Records, Start, post
from tests.proxy.talks import Talk, answering

LARGE, SMALL = "defaults: {window: 128000}", "defaults: {window: 1000, reserve_output: 0, policy: fifo}"

SPELLINGS: dict[str, bytes] = {
    "pretty": json.dumps(json.loads(body([system(), user("q")])), indent=4).encode(),
    "windows": b'{\r\n\t"model" : "gpt-4o" ,\r\n\t"messages" : [ { "role" : "user" , "content" : "q" } ]\r\n}\r\n',
    "escapes": rb'{"model":"gpt\u002d4o","messages":[{"role":"user","content":"\u0041\/\u00e9\ud83d\ude00"}]}',
    "numbers": b'{"temperature":1.0e-0,"seed":123456789012345678901,"messages":[{"role":"user","content":"q"}]}',
    "order": b'{"messages":[{"content":"q","role":"user"}],"stream":false,"model":"gpt-4o","user":"\xc3\xa9"}',
    "unknown": b'{"model":"gpt-4o","messages":[{"role":"user","content":"q","x":{"b":1,"a":[null]}}],"x_new":{"z":{}}}',
    "nested twice": b'{"model":"gpt-4o","messages":[{"role":"user","content":"q"}],"metadata":{"a":1,"a":2}}',
    "no utf-8": b'{"model":"gpt-4o","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "byte order mark": b'\xef\xbb\xbf{"model":"gpt-4o","messages":[{"role":"user","content":"q"}]}',
    "no model": b'{"messages":[{"role":"user","content":"q"}]}',
    "trailing": b'{"model":"gpt-4o","messages":[{"role":"user","content":"q"}]} \n\n\x00',
    "lone surrogate": rb'{"model":"gpt-4o","messages":[{"role":"user","content":"cut \ud83d"}]}',
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    "settings", [LARGE, "defaults: {window: 128000, thresholds: {warn: 0.0}}"], ids=["fits", "counted"]
)
async def test_what_is_not_trimmed_leaves_in_the_clients_own_spelling(
    start: Start, upstream: FakeUpstream, settings: str, spelling: str
) -> None:
    """C03, whether the body was looked into or not."""
    response = await post(await start(settings), SPELLINGS[spelling])

    assert response.status_code == 200
    assert bytes(upstream.last.body) == SPELLINGS[spelling]


@settings(max_examples=70, deadline=None)
@given(made=bodies(), window=st.integers(20, 400), way=st.sampled_from([OnOverflow.FORCE, OnOverflow.TRUNCATE]))
def test_around_what_is_trimmed_every_byte_stays(made: Body, window: int, way: OnOverflow) -> None:
    """C03: messages that stay are raw slices, and so is everything before and behind the list."""
    chosen = route(window=window, protect_last=1, on_overflow=way)
    outcome = Pipeline(lambda _, __: window).settle(Incoming(route=chosen, body=made.raw))

    assert outcome.faults == []
    if not outcome.changed:
        assert outcome.body is made.raw
        return
    assert outcome.body.startswith(made.before)
    assert outcome.body.endswith(made.after)
    chat = parse(outcome.body)
    sent = [chat.raw(i) for i in range(len(chat.messages))]
    left = iter(made.messages)
    unknown = [raw for raw in sent if not any(raw == own for own in left)]
    assert way is OnOverflow.TRUNCATE or unknown == []


async def test_a_conversation_under_its_budget_is_never_touched(start: Start, upstream: FakeUpstream) -> None:
    """C02: with the default policy, turn after turn, each request is the client's own."""
    answering(upstream)
    talk = Talk(await start(LARGE), upstream, [system(), user("What is free tonight?")])

    for number in range(12):
        content = talk.content
        sent = await talk.send()
        assert (bytes(sent.exchange.body), sent.action) == (content, "pass")
        talk.messages.append(user(f"{number}: {words(300, number)}?"))


async def test_the_audit_sets_what_was_freed_against_what_the_cache_lost(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    """C02: tokens freed, the prefix that the provider still has, and what it said of its cache."""

    async def cached(exchange: Exchange) -> None:
        usage = {"prompt_tokens": 700, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 512}}
        reply = {"choices": [{"index": 0, "message": assistant("ok"), "finish_reason": "stop"}], "usage": usage}
        await exchange.answer(json.dumps(reply).encode(), 200, ("Content-Type", "application/json"))

    upstream.handler = cached
    client = await start(SMALL)
    messages = dialogue(20)
    await post(client, body(messages))
    await post(client, body([*messages, assistant("ok"), user("and then?")]))

    first, second = await records.get(2)
    assert first["tokens_freed"] == first["tokens_before"] - first["tokens_after"] > 0
    assert second["cache_prefix_tokens"] > 0.9 * first["tokens_after"]
    assert second["usage"]["cached_tokens"] == 512


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_was_sent_is_sent_again_in_the_same_bytes(
    start: Start, upstream: FakeUpstream, stream: bool
) -> None:
    """C05: between two cuts a request only adds to the one before, markers and their ttl included."""
    answering(upstream, size=20)
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "Tide?", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    }
    talk = Talk(await start(SMALL), upstream, [system(), marked], {"stream": True} if stream else {})
    before: tuple[bytes, ...] = ()
    cuts = 0
    for number in range(24):
        sent = await talk.send()
        if sent.evicted:
            cuts += 1
        else:
            assert sent.raw[: len(before)] == before
        assert json.dumps(marked, ensure_ascii=False).encode() in sent.raw
        before = sent.raw
        talk.messages.append(user(f"Question {number}: {words(30, number)}?"))
    assert 1 <= cuts <= 6


def marker(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral", **more}}]


@every_policy
def test_cache_markers_are_neither_added_nor_changed(policy: str) -> None:
    """C06: kept messages keep theirs, and an eviction of one is in the audit."""
    messages = dialogue(10)
    messages[0]["content"] = marker("You help.", ttl="1h")
    messages[5]["content"] = marker(words(40, 5))
    messages[-1]["content"] = marker("And the last?", ttl="5m")
    messages[9]["cache_control"] = {"type": "ephemeral"}
    messages = stamped(messages)

    found = trim(messages, route(policy, window=400))

    marks = [m["x_at"] for m in messages if b"cache_control" in json.dumps(m).encode()]
    assert found.outcome.body.count(b"cache_control") == sum(m.get("x_at") in marks for m in found.after)
    assert {0, len(messages) - 1} <= {m.get("x_at") for m in found.after}
    gone = found.evicted().intersection(marks)
    assert gone == {i for row in found.record["slots"] if row.get("cache_marked") for i in row["messages"]}


TWICE: dict[str, bytes] = {
    "messages": b'{"model":"gpt-4o","messages":[{"role":"user","content":"x"}],"messages":[]}',
    "messages first empty": b'{"model":"gpt-4o","messages":[],"messages":[{"role":"user","content":"x"}]}',
    "equal": b'{"messages":[{"role":"user","content":"x"}],"messages":[{"role":"user","content":"x"}]}',
    "model": b'{"model":"gpt-4o","model":"gpt-4","messages":[{"role":"user","content":"x"}]}',
    "escaped": rb'{"model":"gpt-4o","m\u0065ssages":[],"messages":[{"role":"user","content":"x"}]}',
    "limit": b'{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"x"}],"max_tokens":9}',
    "unknown": b'{"model":"gpt-4o","x":1,"messages":[{"role":"user","content":"x"}],"x":1}',
}


@pytest.mark.parametrize("padding", [0, 60_000], ids=["small", "over budget"])
@pytest.mark.parametrize("twice", TWICE)
async def test_a_key_that_occurs_twice_is_left_to_the_upstream(
    start: Start, upstream: FakeUpstream, records: Records, twice: str, padding: int
) -> None:
    """C08."""
    content = TWICE[twice].replace(b'"content":"x"', b'"content":"x%b"' % (b" tide" * (padding // 5)))

    response = await post(await start(SMALL), content)

    assert bytes(upstream.last.body) == content
    assert response.headers["x-trimtab-action"] == "pass"
    assert (await records.get())[0]["reason"] == "ambiguous_json"


INSIDE = [b'"role":"user"', b'"content":"x"', b'"tool_calls":[]', rb'"c\u006fntent":"y"']


@pytest.mark.parametrize("member", INSIDE, ids=lambda member: member.decode())
def test_a_key_that_occurs_twice_in_a_message_is_left_too(member: bytes) -> None:
    """C08: whose content it is nobody knows, so no policy touches the request."""
    content = body([*dialogue(20), user("x")]).replace(
        b'"role": "user", "content": "x"', b'"tool_calls":[],"role":"user","content":"x",' + member
    )
    found = trim_bytes(content, route(window=500))

    assert (found.outcome.changed, found.outcome.reason) == (False, "ambiguous_json")


LONE = [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ude00\ud83d", r"\ud83dA", r"\uD83D\n", "\\\\\\ud83d"]


@pytest.mark.parametrize("lone", LONE)
@pytest.mark.parametrize("where", ["kept", "evicted", "shortened", "call", "name", "schema"])
def test_half_an_emoji_from_the_client_is_counted_and_forwarded(where: str, lone: str) -> None:
    """C09: as it was received wherever it is kept; what is shortened stays valid JSON."""
    text = f"{words(30)} HALF"
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": "HALF" if where == "call" else ""},
    }
    messages = [
        system(),
        user("q"),
        assistant(text if where == "evicted" else words(30)),
        *dialogue(8)[1:],
        {**user(text if where == "kept" else "n"), "name": "HALF" if where == "name" else "n"},
        {**calls(1), "tool_calls": [call]},
        result(1, f"HALF {words(900)} HALF" if where == "shortened" else words(30)),
        user("now"),
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": "HALF" if where == "schema" else ""}}]
    content = body(messages, tools=tools).replace(b"HALF", lone.encode())

    found = trim_bytes(content, route(window=600))

    assert found.outcome.changed
    if where in ("kept", "call", "name", "schema"):
        assert lone.encode() in found.outcome.body
    if where == "shortened":
        sent = next(m for m in found.after if m["role"] == "tool")["content"]
        sent.encode()  # raises for a lone surrogate


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.sampled_from(["\U0001f600", "\U0001f44d\U0001f3fd", "\u6e2f", "a", " ", "\u00e9", "\u200d"]),
        min_size=60,
        max_size=90,
    )
)
def test_no_cut_of_ours_makes_half_a_character(pieces: list[str]) -> None:
    """C09: every body that leaves is strict UTF-8 and strict JSON."""
    text = "".join(pieces) * 40
    messages = [user("q"), calls(1), result(1, text), user("now")]
    found = trim(messages, route(window=700, on_overflow=OnOverflow.TRUNCATE))

    json.dumps(json.loads(found.outcome.body.decode()), ensure_ascii=False).encode()
