"""Group E, summaries, state and what is said of a decision (E04, E06, E07, E09, E10, E12)."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from proxy.route import OnOverflow
from tests.cases.histories import stamped
from tests.cases.shapes import calls, every_policy, result
from tests.cases.trimmed import trim
from tests.fakes.upstream import Exchange, FakeUpstream, completion
from tests.proxy.counted import total
from tests.proxy.dialogues import assistant, body, dialogue, route, system, user, words
from tests.proxy.proxied import Records, Start, post
from tests.validator import worsened

LARGE, SMALL = "defaults: {window: 128000}", "defaults: {window: 1000, reserve_output: 0, policy: fifo}"


def error(**fields: Any) -> bytes:
    return json.dumps(
        {"error": {"message": "", "type": "invalid_request_error", "param": None, "code": None, **fields}}
    ).encode()


SUMMARISER = """
embeddings: {wait_ms: 10000}
defaults:
  window: 3000
  reserve_output: 0
  keep_prefix: 0
  breathing_turns: 0
  policy: {name: semantic_cluster, summaries: 0.5}
  alternate_roles: free
  summaries: {kind: llm, upstream: fake, model: small-model, window: 1024, deadline_s: 1}
"""


class ByLength:
    """An embedder in whose eyes texts of one length are alike."""

    name = "length"

    def reads(self, text: str) -> bool:
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.floating]]:
        return [np.eye(1, 8, len(text) % 8, dtype=np.float32) for text in texts]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("way", ["refuses", "stalls", "garbage", "resets"])
async def test_a_summariser_that_fails_costs_no_request(
    start: Start, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """E04: the request goes on its way, and no call is larger than the summariser's window."""
    monkeypatch.setattr("proxy.embeddings.backends.SentenceTransformerEmbedder", lambda _: ByLength())

    async def handler(exchange: Exchange) -> None:
        if exchange.json.get("model") != "small-model":
            await completion(exchange)
        elif way == "refuses":
            await exchange.answer(error(code="context_length_exceeded"), 400)
        elif way == "stalls":
            await exchange.gone.wait()
        elif way == "garbage":
            await exchange.answer(b"\xff<html>")
        else:
            exchange.reset()

    upstream.handler = handler
    messages = dialogue(80, size=20)

    response = await asyncio.wait_for(post(await start(SUMMARISER), body(messages)), 10)

    assert response.status_code == 200
    assert response.headers["x-trimtab-action"] == "trimmed"
    sent = [exchange.json for exchange in upstream.exchanges]
    assert "small-model" in [each["model"] for each in sent]
    assert worsened(messages, next(s for s in sent if s["model"] == "gpt-4o")["messages"]) == []
    for asked in sent:
        if asked["model"] == "small-model":
            assert total("gpt-4o", asked["messages"]) <= 1024 - 150


@pytest.mark.parametrize("way", list(OnOverflow))
@every_policy
def test_what_a_tool_said_is_kept_gone_or_marked_and_never_reworded(policy: str, way: OnOverflow) -> None:
    """E06: every line of a result that is sent is the tool's own, and where some is missing, that is said."""
    if way is OnOverflow.REJECT:
        return
    listings = [f"/srv/berth-{n}: no such file\n" + "\n".join(f"{n}.{i} ok" for i in range(60)) for n in range(8)]
    messages = [system(), user("Which exist?")]
    for number, listing in enumerate(listings):
        messages += [calls(number), result(number, listing)]
    messages = stamped(messages)

    for window in (500, 1500, 2500):
        found = trim(messages, route(policy, window=window, on_overflow=way))
        for message in found.after:
            if message.get("role") == "tool" and message not in messages:
                own = set(listings[int(message["tool_call_id"][5:])].split("\n"))
                strange = [line for line in message["content"].split("\n") if not any(line in line_ for line_ in own)]
                assert len(strange) == 1
                assert strange[0].startswith("[")


async def test_a_client_always_learns_what_was_done(start: Start, upstream: FakeUpstream, records: Records) -> None:
    """E07: header fields, the audit record they lead to, an opt-out for one request, a route that only watches."""
    content = body(dialogue(20))
    client = await start(SMALL)

    trimmed = await post(client, content)
    bypassed = await post(client, content, **{"x-trimtab-bypass": "1"})
    shadow = await post(await start(SMALL.replace("policy:", "mode: shadow, policy:")), content)

    got = trimmed.headers
    assert (got["x-trimtab-action"], got["x-trimtab-policy"]) == ("trimmed", "fifo")
    assert int(got["x-trimtab-tokens-before"]) > int(got["x-trimtab-tokens-after"]) > 0
    assert int(got["x-trimtab-evicted"]) > 0
    assert float(got["x-trimtab-overhead-ms"]) >= 0
    assert [bytes(exchange.body) == content for exchange in upstream.exchanges] == [False, True, True]
    assert (bypassed.headers["x-trimtab-action"], shadow.headers["x-trimtab-action"]) == ("bypass", "shadow")
    first, _, watched = await records.get(3)
    assert first["audit_id"] == got["x-trimtab-audit-id"]
    evicted = [row for row in first["slots"] if row["action"] == "evict"]
    assert len(evicted) == first["slots_evicted"] == int(got["x-trimtab-evicted"])
    assert all(row["reason"] for row in evicted)
    assert watched["slots_evicted"] > 0
    assert words(40, 1) not in json.dumps(first), "what was said stays out of the record"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_usage_is_the_upstreams_own(start: Start, upstream: FakeUpstream, stream: bool) -> None:
    """E09: nothing is added to what was trimmed; what it would have been stands in a header field."""
    usage = {"prompt_tokens": 600, "completion_tokens": 3, "total_tokens": 603}
    said = json.dumps({"choices": [], "usage": usage})

    async def handler(exchange: Exchange) -> None:
        if stream:
            await exchange.sse(said)
        else:
            await exchange.answer(said.encode())

    upstream.handler = handler
    response = await post(await start(SMALL), body(dialogue(20), stream=stream))

    assert response.content == (f"data: {said}\n\ndata: [DONE]\n\n" if stream else said).encode()
    assert int(response.headers["x-trimtab-tokens-before"]) > 1_000


@pytest.mark.parametrize("rewrite", ["compacted", "edited", "reordered", "other system"])
async def test_a_client_that_rewrites_its_history_starts_anew(
    start: Start, upstream: FakeUpstream, records: Records, rewrite: str
) -> None:
    """E09: no decision about messages that are not there any more touches those that are."""
    client = await start(SMALL)
    messages = dialogue(20)
    await post(client, body(messages))
    new = {
        "compacted": [messages[0], user(f"Summary so far: {words(60)}"), assistant("Understood."), messages[-1]],
        "edited": [messages[0], user("Another first question?"), *messages[2:9]],
        "reordered": [messages[0], *messages[3:7], *messages[1:3], messages[-1]],
        "other system": [system("You are brief."), *messages[1:9]],
    }[rewrite]

    response = await post(client, body(new))

    assert upstream.last.json["messages"] == new
    assert response.headers["x-trimtab-action"] == "pass"


async def test_siblings_of_a_stream_see_what_was_committed_before_it(start: Start, upstream: FakeUpstream) -> None:
    """E10: while one answer streams, another request with the same beginning goes at once, in the same form."""
    go = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        if exchange.json.get("stream"):
            await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
            await exchange.chunk(b"data: {}\n\n")
            await go.wait()
            await exchange.chunk(b"")
        else:
            await completion(exchange)

    upstream.handler = slow
    client = await start(SMALL)
    messages = dialogue(20)
    streaming = asyncio.create_task(post(client, body(messages, stream=True)))
    await upstream.arrival()

    sibling = await asyncio.wait_for(post(client, body(messages)), 1.5)
    go.set()
    await streaming

    assert sibling.headers["x-trimtab-action"] in ("trimmed", "held")
    one, other = (exchange.json["messages"] for exchange in upstream.exchanges)
    assert one == other


OWN: dict[str, tuple[str, str, dict[str, str], bytes, int, str]] = {
    "no route": (
        "routes: [{name: a, match: {path: /a}}]",
        "/v1/chat/completions",
        {},
        body([user("q")]),
        404,
        "no_route",
    ),
    "too large": ("server: {max_body_bytes: 9}", "/v1/chat/completions", {}, body([user("q")]), 413, "body_too_large"),
    "unfit": (
        SMALL.replace("policy:", "on_overflow: reject, policy:"),
        "/v1/chat/completions",
        {},
        body([user(words(3000))]),
        400,
        "context_length_exceeded",
    ),
    "bad pin": (SMALL, "/v1/chat/completions", {"x-trimtab-pin": "99"}, body(dialogue(20)), 400, "invalid_pin"),
    "bad header": (SMALL, "/v1/chat/completions", {"x-trimtab-pin": "x"}, body([user("q")]), 400, "invalid_header"),
    "bad path": (SMALL, "/v1/%2e%2e/chat/completions", {}, body([user("q")]), 400, "bad_path"),
    "unreachable": (LARGE, "/v1/chat/completions", {"x-break": "reset"}, body([user("q")]), 502, ""),
    "unreachable elsewhere": (LARGE, "/v1/embeddings", {"x-break": "reset"}, b"{}", 502, ""),
}


@pytest.mark.parametrize("own", OWN)
async def test_errors_of_the_proxy_have_the_shape_that_sdks_expect(
    start: Start, upstream: FakeUpstream, own: str
) -> None:
    """E12: JSON with message, type, param and a stable code, wherever it went wrong."""
    settings, path, fields, content, status, code = OWN[own]

    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    upstream.handler = reset
    client = await start(settings)
    response = await client.post(path, content=content, headers=fields)

    assert response.status_code == status
    assert response.headers["content-type"].startswith("application/json")
    said = response.json()["error"]
    assert set(said) == {"message", "type", "param", "code"}
    assert isinstance(said["message"], str)
    assert isinstance(said["type"], str)
    assert said["code"] == code or (not code and said["code"].startswith("upstream_"))
