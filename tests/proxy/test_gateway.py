"""Chat requests through the whole application, over real sockets."""

import asyncio
import gc
import gzip
import json
import sys
from typing import Any

import openai
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from policies.types import Window
from proxy.http.client import Client
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Outcome
from proxy.pipeline.prompt import Prompt
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import agent, body, dialogue, user
from tests.proxy.proxied import Records, Start, post
from tests.validator import violations, worsened

KINDS = (Outcome, Prompt, Window, Incoming, Client, RequestResponseCycle)  # what a request leaves behind, if anything
SMALL = "defaults: {window: 1000, reserve_output: 0, policy: fifo, breathing_turns: 0}"


async def test_a_request_that_fits_leaves_byte_for_byte(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await start(SMALL)
    content = b'{ "model":"gpt-4o", "x": 1.0,\n "messages":[{"content":"hi \\u00e9 \\/","role":"user"}] }'

    response = await post(client, content)

    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "Hello!"
    assert bytes(upstream.last.body) == content
    assert response.headers["x-trimtab-action"] == "pass"
    assert "x-trimtab-tokens-before" not in response.headers, "it surely fits, so it was not counted"
    (record,) = await records.get()
    assert record["action"] == "pass"
    assert record["audit_id"] == response.headers["x-trimtab-audit-id"]
    assert record["stream_end"] == "done"
    assert record["usage"] == {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": None}


async def test_a_request_over_its_budget_is_trimmed_and_says_so(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await start(SMALL)
    messages = dialogue(20)

    response = await post(client, body(messages, seed=7))

    sent = upstream.last.json
    assert worsened(messages, sent["messages"]) == []
    assert sent["seed"] == 7
    assert response.headers["x-trimtab-action"] == "trimmed"
    assert response.headers["x-trimtab-policy"] == "fifo"
    assert int(response.headers["x-trimtab-tokens-before"]) > 1000
    assert int(response.headers["x-trimtab-tokens-after"]) <= 600
    assert int(response.headers["x-trimtab-evicted"]) == len(messages) - len(sent["messages"])
    (record,) = await records.get()
    assert record["trigger"] == "emergency"
    assert (record["window"], record["reserve"], record["budget"], record["target"]) == (1000, 0, 1000, 600)
    assert [slot["action"] for slot in record["slots"]] == ["evict"] * record["slots_evicted"]
    assert all(slot["reason"] and slot["messages"] == [slot["index"]] for slot in record["slots"])


async def test_a_compressed_request_that_fits_stays_compressed(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    content = gzip.compress(body([user("hello")]))

    await post(client, content, **{"content-encoding": "gzip"})

    assert bytes(upstream.last.body) == content
    assert upstream.last.header("content-encoding") == b"gzip"


async def test_a_compressed_request_that_is_trimmed_leaves_plain(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)

    await post(client, gzip.compress(body(dialogue(20))), **{"content-encoding": "gzip"})

    assert upstream.last.header("content-encoding") is None
    assert violations(upstream.last.json["messages"]) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"not json", "not_json", id="not JSON"),
        pytest.param(b"", "not_json", id="empty"),
        pytest.param(b'{"model":"gpt-4o","messages":' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep", id="nested"),
        pytest.param(b'{"model":"gpt-4o","prompt":"x"}', "no_messages", id="no messages"),
        pytest.param(
            b'{"model":"gpt-4o","messages":[{"role":"user","content":"x"}],"messages":[]}', "ambiguous_json", id="twice"
        ),
        pytest.param(b"\xff\xfe" + b"x" * 2000, "not_json", id="binary"),
    ],
)
async def test_what_cannot_be_read_goes_through_as_it_came(
    start: Start, upstream: FakeUpstream, records: Records, content: bytes, reason: str
) -> None:
    client = await start("defaults: {window: 5, reserve_output: 0}")

    response = await post(client, content)

    assert response.status_code == 200
    assert bytes(upstream.last.body) == content
    assert response.headers["x-trimtab-action"] == "pass"
    (record,) = await records.get()
    assert record["reason"] == reason


async def test_a_body_over_the_cap_is_refused(start: Start, upstream: FakeUpstream) -> None:
    client = await start("server: {max_body_bytes: 1000}")

    plain = await post(client, body([user("x" * 2000)]))
    bomb = await post(client, gzip.compress(b"0" * 100_000), **{"content-encoding": "gzip"})

    for response in (plain, bomb):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
    assert upstream.exchanges == []


async def test_bypass_leaves_a_request_alone(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    content = body(dialogue(20))

    response = await post(client, content, **{"x-trimtab-bypass": "1"})

    assert bytes(upstream.last.body) == content
    assert response.headers["x-trimtab-action"] == "bypass"
    assert not any(name.startswith(b"x-trimtab") for name, _ in upstream.last.headers)


async def test_shadow_decides_and_audits_but_sends_the_original(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await start(SMALL.replace("policy:", "mode: shadow, policy:"))
    content = body(dialogue(20))

    response = await post(client, content)

    assert bytes(upstream.last.body) == content
    assert response.headers["x-trimtab-action"] == "shadow"
    (record,) = await records.get()
    assert record["slots_evicted"] > 0
    assert record["tokens_after"] <= 600


async def test_off_counts_nothing(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL.replace("policy:", "mode: off, policy:").replace("mode: off", "mode: 'off'"))
    content = body(dialogue(20))

    response = await post(client, content)

    assert bytes(upstream.last.body) == content
    assert response.headers["x-trimtab-action"] == "pass"


async def test_a_pinned_message_stays(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    messages = dialogue(20)

    await post(client, body(messages), **{"x-trimtab-pin": "4,-6"})

    assert messages[4] in upstream.last.json["messages"]
    assert messages[-6] in upstream.last.json["messages"]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("x-trimtab-pin", "100", "invalid_pin"), ("x-trimtab-pin", "one", "invalid_header")],
)
async def test_a_header_that_cannot_be_followed_is_refused(
    start: Start, upstream: FakeUpstream, name: str, value: str, code: str
) -> None:
    client = await start(SMALL)

    response = await post(client, body(dialogue(20)), **{name: value})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == code
    assert value in response.json()["error"]["message"]
    assert upstream.exchanges == []


async def test_overrides_are_followed_where_the_route_allows_them(start: Start, upstream: FakeUpstream) -> None:
    headers = {"x-trimtab-policy": "priority", "x-trimtab-budget": "500"}
    content = body(dialogue(20))

    ignored = await post(await start(SMALL), content, **headers)
    allowed = await post(await start(SMALL.replace("policy:", "allow_overrides: true, policy:")), content, **headers)

    assert ignored.headers["x-trimtab-policy"] == "fifo"
    assert allowed.headers["x-trimtab-policy"] == "priority"
    assert int(allowed.headers["x-trimtab-tokens-after"]) <= 300


async def test_reject_says_what_is_pinned(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await start(SMALL.replace("policy:", "on_overflow: reject, policy:"))

    response = await post(client, body([user("word " * 3000)]))

    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "pinned user" in error["message"]
    assert upstream.exchanges == []
    (record,) = await records.get()
    assert record["level"] == "error"


async def test_a_tool_loop_is_cut_in_whole_groups(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    messages = agent(20)

    await post(client, body(messages))

    sent = upstream.last.json["messages"]
    assert worsened(messages, sent) == []
    assert len(sent) < len(messages)
    assert sent[1] == messages[1], "the task"


async def test_a_route_is_chosen_by_path_and_model_and_its_prefix_is_stripped(
    start: Start, upstream: FakeUpstream
) -> None:
    client = await start(
        "routes:\n- {name: support, match: {path: /support, model: 'gpt-4o*'}}\n- {name: rest, match: {path: /rest}}"
    )

    found = await client.post("/support/v1/chat/completions?x=%2F", content=body([user("a")]))
    missing = await client.post("/support/v1/chat/completions", content=body([user("a")], model="other"))
    models = await client.get("/rest/v1/models")

    assert (found.status_code, models.status_code) == (200, 200)
    assert [exchange.target for exchange in upstream.exchanges] == [b"/v1/chat/completions?x=%2F", b"/v1/models"]
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "no_route"
    assert "support, rest" in missing.json()["error"]["message"]


async def test_an_unreachable_upstream_is_a_502_with_the_decision_in_its_headers(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    upstream.handler = reset
    client = await start(SMALL)

    response = await post(client, body(dialogue(20)))

    assert response.status_code == 502
    assert response.json()["error"]["type"] == "server_error"
    assert response.headers["x-trimtab-action"] == "trimmed"
    (record,) = await records.get()
    assert record["stream_end"] == "upstream_error"


async def test_an_upstream_error_is_relayed_verbatim(start: Start, upstream: FakeUpstream) -> None:
    error = b'{"error": {"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}'

    async def limited(exchange: Exchange) -> None:
        await exchange.answer(error, 429, ("Retry-After", "7"), ("x-ratelimit-remaining-requests", "0"))

    upstream.handler = limited
    response = await post(await start(SMALL), body([user("a")]))

    assert response.status_code == 429
    assert response.content == error
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-ratelimit-remaining-requests"] == "0"


async def test_an_unknown_model_is_not_trimmed_until_its_window_is_known(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    async def knowing(exchange: Exchange) -> None:
        if exchange.target == b"/v1/models":
            await exchange.answer(b'{"data": [{"id": "house-model", "max_model_len": 1000}]}')
        else:
            await exchange.answer(b'{"choices": []}', 200, ("Content-Type", "application/json"))

    content = body(dialogue(40), model="house-model")
    client = await start("defaults: {reserve_output: 0, policy: fifo}")

    unknown = await post(client, body(dialogue(40), model="nobody-knows"))
    upstream.handler = knowing
    known = await post(client, content)

    assert unknown.headers["x-trimtab-action"] == "pass"
    assert known.headers["x-trimtab-action"] == "trimmed"
    first, second = await records.get(2)
    assert (first["reason"], first["window"]) == ("window_unknown", "unknown")
    assert second["window"] == 1000


async def stream(exchange: Exchange) -> None:
    """Streams two words if asked to, else answers at once."""
    if not exchange.json.get("stream"):
        await exchange.answer(json.dumps(reply("Hello you")).encode(), 200, ("Content-Type", "application/json"))
        return
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    deltas = [{"role": "assistant", "content": "Hello"}, {"content": " you"}]
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    await exchange.sse(*(json.dumps(c) for c in chunks))


def reply(content: str, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **message}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
    }


async def test_the_official_async_client_works_with_nothing_but_a_base_url(
    start: Start, upstream: FakeUpstream
) -> None:
    upstream.handler = stream
    http = await start(SMALL)
    async with openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="test", max_retries=0) as client:
        messages: Any = dialogue(20)
        whole = await client.chat.completions.create(model="gpt-4o", messages=messages)
        parts = [
            chunk.choices[0].delta.content
            async for chunk in await client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)
        ]

    assert whole.choices[0].message.content == "Hello you"
    assert "".join(part or "" for part in parts) == "Hello you"
    assert upstream.last.header("authorization") == b"Bearer test"
    assert len(upstream.last.json["messages"]) < len(messages)


async def test_the_official_client_runs_a_tool_loop_through_cuts(start: Start, upstream: FakeUpstream) -> None:
    steps = 12

    async def calling(exchange: Exchange) -> None:
        made = sum(1 for message in exchange.json["messages"] if message["role"] == "tool")
        seen = len(upstream.exchanges)
        assert violations(exchange.json["messages"]) == []
        if seen > steps:
            answer = reply("done after trimming")
        else:
            function = {"name": "look_up", "arguments": f'{{"step": {seen}}}'}
            answer = reply("", tool_calls=[{"id": "call_0", "type": "function", "function": function}])
        await exchange.answer(json.dumps(answer).encode(), 200, ("Content-Type", "application/json"))
        kept.append(made)

    kept: list[int] = []
    upstream.handler = calling
    http = await start(SMALL)
    tool: Any = {
        "type": "function",
        "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
    }

    def run() -> str:
        with openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="test", max_retries=0) as client:
            messages: list[Any] = [user("Find the berth.")]
            while True:
                made = client.chat.completions.create(model="gpt-4o", messages=messages, tools=[tool])
                message = made.choices[0].message
                if not message.tool_calls:
                    return message.content or ""
                messages.append(message)
                messages += [
                    {"role": "tool", "tool_call_id": call.id, "content": "berth " * 120} for call in message.tool_calls
                ]

    assert await asyncio.to_thread(run) == "done after trimming"
    assert max(kept) < steps, "the oldest results were dropped on the way"


async def test_the_official_sync_client_streams(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = stream
    http = await start(SMALL)

    def run() -> str:
        messages: Any = [user("hi")]
        with openai.OpenAI(base_url=f"{http.base_url}/v1", api_key="test", max_retries=0) as client:
            made = client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in made)

    assert await asyncio.to_thread(run) == "Hello you"


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param(None, id="null"),
        pytest.param("Mind the gap.", id="a string"),
        pytest.param({"content": "Mind the gap."}, id="no role"),
        pytest.param({"role": None, "content": [{"type": "text", "text": "Mind the gap."}]}, id="null for a role"),
        pytest.param({"type": "function_call_output", "call_id": "c1", "output": "{}"}, id="an item of another API"),
    ],
)
async def test_trimming_goes_on_around_what_is_no_message(
    start: Start, upstream: FakeUpstream, records: Records, stray: object
) -> None:
    client = await start(SMALL)
    messages: list[Any] = dialogue(20)
    messages.insert(9, stray)

    response = await post(client, body(messages))

    sent = upstream.last.json["messages"]
    assert response.headers["x-trimtab-action"] == "trimmed"
    assert response.headers["x-trimtab-reason"] == "unknown_messages"
    assert int(response.headers["x-trimtab-tokens-after"]) <= 600
    assert stray in sent, "nobody knows what it is, so it stays"
    assert [each for each in sent if each != stray] == [each for each in messages if each in sent and each != stray]
    (record,) = await records.get()
    assert (record["unknown_messages"], record["reason"]) == (1, "unknown_messages")


async def test_what_is_passed_on_unread_says_why(start: Start, upstream: FakeUpstream) -> None:
    client = await start(SMALL)
    twice = b'{"model":"gpt-4o","messages":[' + b'{"role":"user","role":"system","content":"x"},' * 200 + b"{}]}"

    response = await post(client, twice)

    assert bytes(upstream.last.body) == twice
    assert response.headers["x-trimtab-action"] == "pass"
    assert response.headers["x-trimtab-reason"] == "ambiguous_json"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        pytest.param("POST", "/healthz", 405, "method_not_allowed", id="another method"),
        pytest.param("DELETE", "/metrics", 405, "method_not_allowed", id="another method for metrics"),
        pytest.param("PUT", "/trimtab", 405, "method_not_allowed", id="another method for the dashboard"),
        pytest.param("POST", "/trimtab/api/overview", 405, "method_not_allowed", id="another method for its figures"),
    ],
)
async def test_what_the_proxys_own_paths_do_not_offer_is_told_in_openais_shape(
    start: Start, upstream: FakeUpstream, method: str, path: str, status: int, code: str
) -> None:
    client = await start(SMALL)

    response = await client.request(method, path)

    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert "GET" in response.headers["allow"]
    assert upstream.exchanges == []


async def test_a_request_that_is_answered_leaves_nothing_to_the_collector(start: Start, records: Records) -> None:
    """Else its messages stay in memory until the collector comes, which with much in memory it seldom does."""
    others = _kept()  # by other tests, which name some
    client = await start(SMALL)
    await post(client, body(dialogue(20)))
    before = _kept()  # of the connection that is kept open
    gc.disable()
    try:
        response = await post(client, body(dialogue(30)))
        assert response.headers["x-trimtab-action"] == "trimmed"
        await records.get(2)
        left = sum(issubclass(type(each), KINDS) for each in gc.get_objects())
    finally:
        gc.enable()

    assert left == before
    assert before - others <= 2


def _kept() -> int:
    gc.collect()
    return sum(issubclass(type(each), KINDS) for each in gc.get_objects())


async def test_a_body_is_let_go_of_before_its_answer_ends(
    start: Start, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = body([user("Which berth? " * 100)])
    client = await start()
    go = asyncio.Event()

    async def read(*_: object) -> bytes:
        return whole

    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Content-Length", "14"))
        await go.wait()
        await exchange.send(b"data: [DONE]\n\n")

    upstream.handler = handler
    monkeypatch.setattr("proxy.gateway.bodies.read", read)
    held = sys.getrefcount(whole)
    async with client.stream("POST", "/v1/chat/completions", content=b"{}") as response:
        assert response.status_code == 200
        assert sys.getrefcount(whole) == held
        go.set()
        await response.aread()
