"""A request can be tried: what would go and why, by several policies; nothing is sent and nothing is kept."""

import gzip
import json
from typing import Any

import httpx2
import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.proxied import Records, Start
from tests.proxy.talks import MODEL, answering

SETTINGS = "defaults: {window: 4000, reserve_output: 1000, recall: {budget: 0}}"


def chat(turns: int, **fields: Any) -> bytes:
    messages = [{"role": "system", "content": "You keep a garden's diary."}]
    for number in range(turns):
        text = f"On day {number} " + "the beans grew by a hand's breadth and the snails came back. " * 12
        messages.append({"role": "assistant" if number % 2 else "user", "content": text})
    messages.append({"role": "user", "content": "What grew?"})
    return json.dumps({"model": MODEL, "messages": messages, **fields}).encode()


async def preview(client: httpx2.AsyncClient, body: bytes, query: str = "", **headers: str) -> httpx2.Response:
    return await client.post(f"/trimtab/preview{query}", content=body, headers=headers)


async def test_two_policies_are_compared_slot_by_slot(start: Start) -> None:
    client = await start(SETTINGS)

    answer = (await preview(client, chat(20), "?policy=fifo&policy=priority")).json()

    assert [each["policy"] for each in answer["previews"]] == ["fifo", "priority"]
    assert (answer["route"], answer["model"]) == ("default", MODEL)
    for each in answer["previews"]:
        assert each["budget"] == 3000
        assert each["tokens_after"] <= 2100 < each["tokens_before"]
        assert len(each["slots"]) == each["slots_total"] == len(answer["messages"])
        gone = [slot for slot in each["slots"] if slot["action"] == "evict"]
        assert gone
        assert all(slot["reason"] for slot in gone)
    assert sum(m["tokens"] for m in answer["messages"]) + answer["overhead_tokens"] == each["tokens_before"]


async def test_nothing_is_sent_and_nothing_is_kept(start: Start, upstream: FakeUpstream, records: Records) -> None:
    answering(upstream)
    client = await start(SETTINGS)

    await preview(client, chat(20), "?policy=fifo")
    sent = await client.post("/v1/chat/completions", content=chat(20))

    assert len(upstream.exchanges) == 1
    (record,) = await records.get()
    assert sent.headers["x-trimtab-policy"] == "hybrid"
    assert (record["ledger"], record["replayed"]) == ("none", None)


async def test_texts_do_not_come_back(start: Start) -> None:
    client = await start(SETTINGS + "\n")

    assert "snails" not in (await preview(client, chat(20))).text


async def test_budgets_are_combined_with_policies(start: Start) -> None:
    client = await start(SETTINGS)

    answer = (await preview(client, chat(20), "?policy=fifo&policy=lru&budget=1500&budget=2500")).json()

    assert [(each["policy"], each["budget"]) for each in answer["previews"]] == [
        ("fifo", 1500),
        ("fifo", 2500),
        ("lru", 1500),
        ("lru", 2500),
    ]


async def test_what_fits_is_counted_and_left_alone(start: Start) -> None:
    client = await start(SETTINGS)

    answer = (await preview(client, gzip.compress(chat(1)), **{"content-encoding": "gzip"})).json()

    assert answer["previews"][0]["action"] == "pass"
    assert [m["role"] for m in answer["messages"]] == ["system", "user", "user"]


async def test_a_route_that_only_watches_or_does_nothing_shows_what_it_would_do(start: Start) -> None:
    client = await start(f"{SETTINGS}\nroutes: [{{name: a, mode: off}}, {{name: b, mode: shadow, policy: lru}}]")

    for route in ("a", "b"):
        (shown,) = (await preview(client, chat(20), f"?route={route}")).json()["previews"]
        assert (shown["route"], shown["action"]) == (route, "trimmed")


async def test_what_would_be_rejected_says_so_beside_the_others(start: Start) -> None:
    client = await start(f"{SETTINGS}\nroutes: [{{name: a, on_overflow: reject}}]")

    small, large = (await preview(client, chat(20), "?budget=10&budget=2500")).json()["previews"]

    assert small["error"]["code"] == "context_length_exceeded"
    assert large["action"] == "trimmed"


@pytest.mark.parametrize(
    ("query", "body", "status", "told"),
    [
        ("?policy=best", chat(1), 400, "policy: must be one of "),
        ("?budget=-1", chat(1), 400, "budget: must be a positive number of tokens, got '-1'"),
        ("?budget=٣", chat(1), 400, "budget: must be a positive number"),
        ("?window=0", chat(1), 400, "window: must be a positive number"),
        ("?route=nowhere", chat(1), 400, "route: must be one of default, got 'nowhere'"),
        ("?polcy=fifo", chat(1), 400, "no parameter is called 'polcy'; known: route, policy, budget, window"),
        ("?" + "&".join(f"budget={n}" for n in range(1, 10)), chat(1), 400, "at most 8 together, got 9"),
        ("", b"{}", 400, "no chat request"),
        ("", b"[" * 100_000, 400, "no chat request"),
        ("", b"\xff", 400, "no chat request"),
    ],
    ids=lambda value: value[:16] if isinstance(value, str) else "",
)
async def test_a_mistake_is_told_with_what_would_do(
    start: Start, query: str, body: bytes, status: int, told: str
) -> None:
    client = await start(SETTINGS)

    answer = await preview(client, body, query)

    assert answer.status_code == status
    assert told in answer.json()["error"]["message"]


async def test_an_encoding_that_nobody_knows_is_told(start: Start) -> None:
    answer = await preview(await start(SETTINGS), b"x", **{"content-encoding": "rot13"})

    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unknown_encoding")


async def test_only_posts_are_previewed(start: Start) -> None:
    assert (await (await start(SETTINGS)).get("/trimtab/preview")).status_code == 405
