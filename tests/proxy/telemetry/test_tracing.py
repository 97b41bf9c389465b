"""Spans of chat requests, as a collector gets them, and the trace that goes on behind the proxy."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from proxy import config as configs
from proxy.app import create_app
from tests.fakes.collector import Collector
from tests.fakes.server import serving
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, dialogue, user, words
from tests.proxy.proxied import Records, post
from tests.proxy.test_retry import Strict

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
SMALL = "defaults: {window: 800, reserve_output: 0, policy: fifo, keep_prefix: 0}"


@dataclass
class Traced:
    """A proxy whose spans go to a collector."""

    client: httpx2.AsyncClient
    collector: Collector


Begin = Callable[..., Awaitable[Traced]]


@pytest.fixture
async def begin(
    upstream: FakeUpstream,
    serve: Callable[..., Awaitable[str]],
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Begin]:
    """Starts a collector and a proxy that tells it: `traced = await begin(SMALL)`."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    clients: list[httpx2.AsyncClient] = []

    async def beginning(settings: str = "", traces: str = "true") -> Traced:
        collector = Collector()
        config = configs.loads(
            f"upstreams: {{fake: {{base_url: '{upstream.url}/v1'}}}}\naudit: {{path: '{records.path}'}}\n{settings}\n"
            f"telemetry: {{traces: {traces}, endpoint: '{await serve(collector.app())}'}}"
        )
        url = await serve(create_app(config, {}))
        clients.append(httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20))
        return Traced(clients[-1], collector)

    yield beginning
    for client in clients:
        await client.aclose()


async def answered_with_usage(exchange: Exchange) -> None:
    await exchange.answer(
        b'{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],'
        b' "usage": {"prompt_tokens": 400, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 128}}}',
        200,
        ("Content-Type", "application/json"),
    )


async def test_a_request_has_a_span_that_says_what_was_decided_about_it(
    begin: Begin, upstream: FakeUpstream, records: Records
) -> None:
    upstream.handler = answered_with_usage
    traced = await begin(SMALL)

    await post(traced.client, body(dialogue(20), model="gpt-4o-mini"))
    asked, request = await traced.collector.spans(2)
    (record,) = await records.get()

    assert record["slots_evicted"] > 0
    assert (request.name, request.kind, request.failed) == ("chat gpt-4o-mini", "server", False)
    expected = {
        "context.eviction.strategy": "fifo",
        "context.eviction.slots_evicted": record["slots_evicted"],
        "context.eviction.tokens_freed": record["tokens_freed"],
        "context.utilization_before": record["utilization_before"],
        "context.utilization_after": record["utilization_after"],
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.conversation.id": record["conversation"],
        "gen_ai.usage.input_tokens": 400,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 128,
        "gen_ai.response.finish_reasons": ["stop"],
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "trimtab.route": "default",
        "trimtab.action": "trimmed",
        "trimtab.audit_id": record["audit_id"],
        "trimtab.overhead_ms.total": record["overhead_ms"]["total"],
        "trimtab.stream_end": "done",
    }
    assert {name: request.attributes.get(name) for name in expected} == expected
    assert request.resource["service.name"] == "trimtab"
    assert (asked.kind, asked.parent, asked.trace) == ("client", request.id, request.trace)
    assert asked.attributes["server.address"] == "127.0.0.1"
    assert f":{asked.attributes['server.port']}" in upstream.url
    assert 0 < asked.seconds <= request.seconds
    assert traced.collector.paths[0] == "/v1/traces"


async def test_the_trace_goes_on_through_the_proxy(begin: Begin, upstream: FakeUpstream) -> None:
    traced = await begin()

    await post(traced.client, body([user("hello")]), traceparent=SAMPLED, tracestate="vendor=7")
    asked, request = await traced.collector.spans(2)

    (exchange,) = upstream.exchanges
    assert (request.trace, request.parent) == (TRACE, PARENT)
    assert exchange.header("traceparent") == f"00-{TRACE}-{asked.id}-01".encode()
    assert exchange.header("tracestate") == b"vendor=7"
    assert [name for name, _ in exchange.headers].count(b"traceparent") == 1


async def test_who_does_not_want_to_be_traced_is_not_and_the_trace_goes_on(
    begin: Begin, upstream: FakeUpstream
) -> None:
    traced = await begin()

    await post(traced.client, body([user("hello")]), traceparent=UNSAMPLED)
    await post(traced.client, body([user("hello again")]))
    _, request = await traced.collector.spans(2)

    assert request.trace != TRACE, "only the second request was told of"
    assert len(traced.collector.told) == 2
    told = upstream.exchanges[0].header("traceparent")
    assert told is not None
    assert told.startswith(f"00-{TRACE}-".encode())
    assert told.endswith(b"-00")


@pytest.mark.parametrize(
    "given",
    ["", "00-xyz-1-01", f"{SAMPLED}, {SAMPLED}", f"00-{'0' * 32}-{PARENT}-01"],
    ids=["none", "no hex", "two", "all zeros"],
)
async def test_what_is_no_trace_begins_one(begin: Begin, upstream: FakeUpstream, given: str) -> None:
    traced = await begin()

    await post(traced.client, body([user("hello")]), traceparent=given)
    asked, request = await traced.collector.spans(2)

    assert request.parent == ""
    told = upstream.exchanges[0].header("traceparent")
    assert told is not None
    assert told.startswith(f"00-{request.trace}-{asked.id}-".encode())
    assert int(told[-2:], 16) & 1, "sampled"


async def test_without_tracing_the_clients_own_goes_through(begin: Begin, upstream: FakeUpstream) -> None:
    traced = await begin(traces="false")
    given = {"traceparent": "whatever it is", "tracestate": "a=1,,b", "b3": "0"}

    await post(traced.client, body([user("hello")]), **given)

    assert {name: upstream.exchanges[0].header(name) for name in given} == {n: v.encode() for n, v in given.items()}
    assert traced.collector.told == []


async def test_a_retry_is_a_second_span_within_the_request(begin: Begin, upstream: FakeUpstream) -> None:
    upstream.handler = Strict(40)
    traced = await begin("defaults: {window: 2600, reserve_output: 0, policy: fifo, breathing_turns: 0}")

    await post(traced.client, body(dialogue(20)))
    first, second, request = await traced.collector.spans(3)

    assert [each.attributes["http.response.status_code"] for each in (first, second, request)] == [400, 200, 200]
    assert [first.failed, second.failed, request.failed] == [True, False, False]
    assert first.attributes["error.type"] == "400"
    assert "http.request.resend_count" not in first.attributes
    assert second.attributes["http.request.resend_count"] == 1
    assert {first.parent, second.parent} == {request.id}
    assert request.attributes["trimtab.action"] == "retried"


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def broken(exchange: Exchange) -> None:
    await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
    await exchange.chunk(b'data: {"choices": []}\n\n')
    exchange.close()


async def failing(exchange: Exchange) -> None:
    await exchange.answer(b'{"error": {"code": "overloaded", "message": "later"}}', 503)


@pytest.mark.parametrize(
    ("handler", "error"),
    [(reset, "upstream_error"), (broken, "upstream_error"), (failing, "overloaded")],
    ids=["reset", "broken off", "503"],
)
async def test_a_failure_of_the_upstream_is_one_of_both_spans(
    begin: Begin, upstream: FakeUpstream, handler: Callable[[Exchange], Awaitable[None]], error: str
) -> None:
    upstream.handler = handler
    traced = await begin()

    try:
        await post(traced.client, body([user("hello")], stream=True))
    except httpx2.RemoteProtocolError:
        assert handler is broken
    asked, request = await traced.collector.spans(2)

    assert (asked.failed, request.failed) == (True, True)
    assert request.attributes["error.type"] == error


async def test_what_the_proxy_refuses_has_a_span_too(begin: Begin, upstream: FakeUpstream) -> None:
    traced = await begin("defaults: {window: 300, on_overflow: reject}\nserver: {max_body_bytes: 40000}")

    await post(traced.client, body([user(words(2000))]))
    await post(traced.client, b" " * 50_000)
    too_long, too_large = await traced.collector.spans(2)

    assert upstream.exchanges == []
    assert too_long.attributes["error.type"] == "context_length_exceeded"
    assert too_long.attributes["http.response.status_code"] == 400
    assert too_long.attributes["trimtab.route"] == "default"
    assert too_large.attributes["http.response.status_code"] == 413
    assert (too_long.failed, too_large.failed) == (False, False), "they are the client's faults, not the server's"


async def test_a_fault_of_the_proxys_own_is_an_error_of_the_span(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise LookupError("nobody should see this")

    monkeypatch.setattr("proxy.gateway.Gateway._find", broken)
    traced = await begin()

    response = await post(traced.client, body([user("hello")]))
    (request,) = await traced.collector.spans(1)

    assert response.status_code == 500
    assert request.failed
    assert request.attributes["error.type"] == "LookupError"
    assert b"nobody should" not in b"".join(traced.collector.raw)


async def test_the_span_of_a_stream_lasts_until_its_end(begin: Begin, upstream: FakeUpstream) -> None:
    async def streaming(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b'data: {"choices": [{"index": 0, "delta": {"content": "Yes"}}]}\n\n')
        ends.append(time.time())
        await exchange.chunk(b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}\n\n')
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")

    ends: list[float] = []
    upstream.handler = streaming
    traced = await begin()
    start = time.time()

    await post(traced.client, body([user("hello")], stream=True))
    asked, request = await traced.collector.spans(2)

    assert request.seconds >= asked.seconds > 0
    assert request.seconds >= ends[0] - start - 0.05
    assert request.attributes["gen_ai.usage.input_tokens"] == 9
    assert request.attributes["trimtab.stream_end"] == "done"


async def test_a_collector_that_is_not_there_costs_nothing(
    upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
    settings = (
        f"upstreams: {{fake: {{base_url: '{upstream.url}/v1'}}}}\naudit: {{path: '{tmp_path}/audit.jsonl'}}\n"
        "telemetry: {endpoint: 'http://127.0.0.1:1'}"
    )
    async with (
        serving(create_app(configs.loads(settings), {})) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False) as client,
    ):
        answers = [await post(client, body([user("hello")])) for _ in range(5)]
        stopping = time.monotonic()

    assert [answer.status_code for answer in answers] == [200] * 5
    assert time.monotonic() - stopping < 5, "a stop does not wait for it either"
