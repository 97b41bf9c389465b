"""What Prometheus is told, read from `/metrics` as Prometheus reads it."""

import asyncio
import json
from collections.abc import Mapping, Sequence

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from policies import registry
from policies.types import Kind
from proxy import metrics as metrics_module
from proxy.conversations.notes import Note
from proxy.conversations.placed import Placed
from proxy.metrics import MODELS, Metrics
from proxy.pipeline.budget import Trigger
from proxy.pipeline.outcome import Action, Outcome, Stages
from proxy.route import Route
from proxy.upstream.relay import End
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, dialogue, user
from tests.proxy.proxied import Records, Start, post

SMALL = "defaults: {window: 1000, reserve_output: 0, policy: fifo, breathing_turns: 0}"


class Figures:
    """Samples by name and labels; what is not there counts as 0."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def named(self, name: str) -> list[Mapping[str, str]]:
        return [dict(labels) for found, labels in self.samples if found == name]


async def figures(client: httpx2.AsyncClient) -> Figures:
    response = await client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return Figures(response.text)


async def ended(client: httpx2.AsyncClient, records: Records, count: int) -> Figures:
    """The figures once `count` turns have ended."""
    await records.get(count)
    return await figures(client)


async def test_a_cut_is_counted_with_what_it_saved(start: Start, records: Records) -> None:
    client = await start(SMALL)

    await post(client, body(dialogue(20)))

    seen = await ended(client, records, 1)
    (record,) = await records.get()
    assert seen("trimtab_requests_total", route="default", action="trimmed", status="2xx") == 1
    assert seen("context_eviction_total", kind="emergency", policy="fifo") == 1
    assert seen("context_eviction_total", kind="normal", policy="fifo") == 0
    assert seen("trimtab_slots_total", action="evict") == record["slots_evicted"]
    assert seen("trimtab_tokens_before_total", route="default") == record["tokens_before"]
    assert seen("trimtab_tokens_after_total", route="default") == record["tokens_after"]
    assert seen("trimtab_tokens_saved_total", route="default") == record["tokens_freed"] > 0
    assert seen("context_utilization_count", route="default") == 1
    assert seen("context_utilization_sum", route="default") == pytest.approx(record["utilization_before"])
    assert seen("trimtab_utilization_sent_sum", route="default") == pytest.approx(record["utilization_after"])
    assert seen("trimtab_usage_tokens_total", route="default", kind="prompt") == 9
    assert seen("trimtab_model_requests_total", model="gpt-4o") == 1
    for stage, ms in record["overhead_ms"].items():
        assert seen("trimtab_overhead_seconds_sum", stage=stage) == pytest.approx(ms / 1000, abs=1e-5)


async def test_a_request_that_fits_cuts_nothing(start: Start, records: Records) -> None:
    client = await start(SMALL)

    await post(client, body([user("hello")]))

    seen = await ended(client, records, 1)
    assert seen("trimtab_requests_total", route="default", action="pass", status="2xx") == 1
    assert sum(seen("context_eviction_total", **labels) for labels in seen.named("context_eviction_total")) == 0
    assert seen("trimtab_tokens_saved_total", route="default") == 0
    assert {labels["policy"] for labels in seen.named("context_eviction_total")} == set(registry.names())


class ByLength:
    """An embedder in whose eyes texts of one length are alike."""

    name = "length"

    def reads(self, text: str) -> bool:
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.floating]]:
        return [np.eye(1, 8, len(text) % 8, dtype=np.float32) for text in texts]

    def close(self) -> None:
        pass


async def test_vectors_and_what_was_prepared_are_told_of(
    start: Start, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.embeddings.backends.SentenceTransformerEmbedder", lambda _: ByLength())
    client = await start(
        "embeddings: {wait_ms: 10000}\ndefaults: {window: 3000, reserve_output: 0, breathing_turns: 0, policy: rwr, "
        "thresholds: {warn: 0.1}}"
    )
    talk = dialogue(40)

    await post(client, body(talk))

    seen = await ended(client, records, 1)
    (record,) = await records.get()
    assert record["gathered"]["waited"] == len(talk) - 1
    assert seen("trimtab_embedder_made_total") - (len(talk) - 1) in (0, 1), "the reply may have its own by now"
    assert seen("trimtab_embedder_misses_total") >= len(talk) - 1
    assert seen("trimtab_embedder_failures_total") == seen("trimtab_ratings_calls_total") == 0
    assert seen("trimtab_embedder_calls_total") >= (len(talk) - 1) // 16
    assert seen("trimtab_prepared_total", prepared="none") == 1
    async with asyncio.timeout(5):
        while seen("trimtab_background_done_total") < 1 or seen("trimtab_background_waiting"):
            seen = await figures(client)
    assert seen("trimtab_ratings_waiting") == 0


async def test_a_request_between_warn_and_evict_is_a_warning(start: Start, records: Records) -> None:
    client = await start(
        "defaults: {window: 1000, reserve_output: 0, thresholds: {warn: 0.1, evict: 0.98, emergency: 1.0}}"
    )

    await post(client, body(dialogue(8)))

    seen = await ended(client, records, 1)
    (record,) = await records.get()
    assert 0.1 <= record["utilization_before"] < 0.98
    assert seen("trimtab_warned_total", route="default") == 1


async def test_whatever_is_answered_is_counted(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await start(
        "routes: [{name: chat, match: {path: /v1}, on_overflow: reject, window: 300, reserve_output: 0}]"
    )
    upstream.handler = failing

    await post(client, body([user("hello")]))
    await post(client, body([user("word " * 2000)]))
    await client.get("/v1/models")
    await client.post("/elsewhere/chat/completions", content=body([user("hello")]))

    seen = await ended(client, records, 2)
    assert seen("trimtab_requests_total", route="chat", action="pass", status="5xx") == 1
    assert seen("trimtab_model_requests_total", model="gpt-4o") == 0, "only names that an upstream knows are told"
    assert seen("trimtab_refused_total", route="chat", code="context_length_exceeded") == 1
    assert seen("trimtab_passed_through_total", route="chat", end="eof") == 1
    assert seen("trimtab_responses_total", status="4xx") == 2
    assert seen("trimtab_responses_total", status="5xx") == 2


async def failing(exchange: Exchange) -> None:
    await exchange.answer(b"{}", 500, ("Content-Type", "application/json"))


async def test_streams_are_open_until_they_end(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await start(SMALL)
    go_on = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b"data: {}\n\n")
        await go_on.wait()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")

    upstream.handler = slow
    async with client.stream("POST", "/v1/chat/completions", content=body([user("hello")], stream=True)) as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        during = await figures(client)
        go_on.set()
        assert b"".join([piece async for piece in pieces]).endswith(b"[DONE]\n\n")
    after = await ended(client, records, 1)

    assert (during("trimtab_streams_open"), during("trimtab_requests_open")) == (1, 1)
    assert (after("trimtab_streams_open"), after("trimtab_requests_open")) == (0, 0)
    assert after("trimtab_stream_ends_total", route="default", end="done") == 1


async def test_store_audit_windows_and_process_are_told_of(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await start("defaults: {policy: fifo}")

    async def models(exchange: Exchange) -> None:
        card = {"id": "house-model", "max_model_len": 9000}
        await exchange.answer(json.dumps({"data": [card]}).encode(), 200, ("Content-Type", "application/json"))

    upstream.handler = models
    await post(client, body(dialogue(40), model="house-model"))

    seen = await ended(client, records, 1)
    assert seen("trimtab_store_calls_total") > 0
    assert seen("trimtab_store_down") == 0
    assert seen("trimtab_audit_records_total", result="written") == 1
    assert seen("trimtab_windows_learned") == 1
    assert seen("process_resident_memory_bytes") > 1e7
    assert len(seen.named("trimtab_build_info")) == 1


async def test_no_words_of_a_client_become_a_name_or_a_label(start: Start, records: Records) -> None:
    client = await start(SMALL)

    await post(client, body([user("my secret")], model="secret-model"), authorization="Bearer sk-secret")
    await client.get("/v1/secret-path", headers={"x-secret": "secret"})

    await records.get()
    page = (await client.get("/metrics")).text.replace('model="secret-model"', "")  # the upstream answered for it
    assert "secret" not in page


async def test_openmetrics_is_spoken_where_it_is_asked_for(start: Start) -> None:
    client = await start(SMALL)

    response = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})

    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert "context_eviction" in {family.name for family in openmetrics(response.text)}


def outcome(**changes: object) -> Outcome:
    route = Route(name="r", upstream="u", policy=registry.create("fifo", {}))
    return Outcome(route=route, body=b"", audit_id="a", stages=Stages(lambda: 0.0), **changes)  # type: ignore[arg-type]


def test_labels_are_bounded_whatever_clients_and_plugins_name() -> None:
    told = Metrics(routes=["r"], policies=["fifo"])

    for number in range(3 * MODELS):
        told.turn(outcome(model=f"model-{number}", faults=[f"fault-{number}"]), End.EOF, None, 200)
    strange = outcome(policy="not configured")
    strange.stages.ms["not a stage"] = 1.0
    told.turn(strange, End.EOF, None, 200)

    for metric, most in (("trimtab_model_requests", MODELS + 1), ("trimtab_faults", metrics_module.FAULTS + 1)):
        values = {tuple(s.labels.values()) for f in told.registry.collect() if f.name == metric for s in f.samples}
        assert len(values) == most
        assert ("other",) in values
    stages = {
        s.labels["stage"] for f in told.registry.collect() if f.name == "trimtab_overhead_seconds" for s in f.samples
    }
    assert stages == {"other", "total"}


@pytest.mark.parametrize("status", [None, 100, 200, 404, 599])
@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("action", [Action.PASS, Action.HELD])
def test_every_turn_is_counted_once(action: Action, end: End, status: int | None) -> None:
    told = Metrics(routes=["r"], policies=["fifo"])

    told.turn(outcome(action=action), end, None, status)

    for name in ("trimtab_requests", "trimtab_stream_ends"):
        (family,) = [family for family in told.registry.collect() if family.name == name]
        assert [sample.value for sample in family.samples if sample.name.endswith("_total")] == [1.0]


def test_notes_are_counted_with_what_they_cost() -> None:
    told = Metrics(routes=["a"], policies=["fifo"])
    note = Placed(Note(kind=Kind.RECALL, before=1), "Quotes.", 12)

    told.turn(outcome(notes_made=(note, note), trigger=Trigger.NORMAL, prepared="parts"), End.EOF, None, 200)

    seen = Figures(generate_latest(told.registry).decode())
    assert seen("trimtab_notes_total", kind="recall") == 2
    assert seen("trimtab_note_tokens_total", kind="recall") == 24
    assert seen("trimtab_prepared_total", prepared="parts") == 1
