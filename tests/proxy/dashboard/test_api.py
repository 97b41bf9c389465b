"""What the page asks for: sums, decisions, conversations; texts only where the operator turned them on."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import user, words
from tests.proxy.proxied import Records, Start
from tests.proxy.talks import Talk, answering

SETTINGS = "defaults: {window: 2000, reserve_output: 500, recall: {budget: 0}, policy: fifo}"
SECRET = "zebra-quartz-7781"


async def talked(
    start: Start, upstream: FakeUpstream, records: Records, settings: str = SETTINGS
) -> httpx2.AsyncClient:
    """A conversation of six requests, the later ones cut, with a secret in its words and its key."""
    answering(upstream)
    client = await start(settings)
    talk = Talk(client, upstream, [user("Plan a garden.")], headers={"authorization": f"Bearer sk-{SECRET}"})
    await talk.send()
    for turn in range(5):
        await talk.send(user(f"{SECRET} {words(350, turn)}"))
    await records.get(6)
    await asyncio.sleep(0.1)  # the store is written after the line
    return client


async def get(client: httpx2.AsyncClient, path: str, status: int = 200) -> Any:
    answer = await client.get(f"/trimtab/api/{path}")
    assert answer.status_code == status, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def test_the_overview_sums_what_came(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await talked(start, upstream, records)

    data = await get(client, "overview?span=3600")

    totals = data["totals"]
    lines = await records.get(6)
    assert totals["requests"] == 6
    assert totals["cuts"] == sum(1 for line in lines if line["trigger"])
    assert totals["cuts"] > 0
    assert totals["saved"] == sum(line["tokens_freed"] for line in lines if line["action"] == "trimmed")
    assert totals["gone_user"] > 0
    assert sum(each["requests"] for each in data["series"]) == 6
    assert [each["name"] for each in data["routes"]] == ["default"]
    assert (data["content"], data["health"]["audit"]["failed"]) == (False, 0)


async def test_a_decision_is_told_slot_by_slot_though_lines_hold_changes_alone(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await talked(start, upstream, records)
    line = next(each for each in await records.get(6) if each["trigger"])

    record = await get(client, f"decisions/{line['audit_id']}")

    assert [slot for slot in record["slots"] if slot["action"] != "keep"] == line["slots"]
    assert len(record["slots"]) == record["slots_total"] > len(line["slots"])


async def test_who_has_only_an_id_is_told_what_was_dropped_before(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await talked(start, upstream, records)
    last = (await records.get(6))[-1]

    record = await get(client, f"decisions/{last['audit_id']}")

    gone = {index for past in record["history"] for index in past["gone"]}
    gone |= {i for slot in record["slots"] if slot["action"] == "evict" for i in slot["messages"]}
    sent = upstream.exchanges[-1].json["messages"]
    assert gone
    assert len(sent) == 11 - len(gone)


async def test_a_conversation_is_told_in_order(start: Start, upstream: FakeUpstream, records: Records) -> None:
    client = await talked(start, upstream, records)

    (listed,) = (await get(client, "conversations"))["conversations"]
    told = await get(client, f"conversations/{listed['conversation']}")

    assert [row["id"] for row in told["decisions"]] == sorted(row["id"] for row in told["decisions"])
    assert len(told["decisions"]) == listed["requests"]
    assert listed["cuts"] == sum(1 for row in told["decisions"] if row["trigger"])


async def test_decisions_are_found_and_turned_over_page_by_page(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await talked(start, upstream, records)

    first = (await get(client, "decisions?limit=4"))["decisions"]
    second = (await get(client, f"decisions?limit=4&before={first[-1]['id']}"))["decisions"]
    trimmed = (await get(client, "decisions?action=trimmed"))["decisions"]

    assert [row["id"] for row in (*first, *second)] == [6, 5, 4, 3, 2, 1]
    assert {row["action"] for row in trimmed} == {"trimmed"}
    assert (await get(client, "decisions?route=other"))["decisions"] == []


async def test_no_text_and_no_key_is_told_with_content_off(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    client = await talked(start, upstream, records)
    rows = (await get(client, "decisions"))["decisions"]
    paths = ["overview", "decisions", "conversations", *(f"decisions/{row['audit_id']}" for row in rows)]
    paths += [f"conversations/{row['conversation']}" for row in rows if row["conversation"]]

    told = json.dumps([await get(client, path) for path in paths])

    assert SECRET not in told
    assert "Plan a garden" not in told
    assert SECRET not in records.path.read_text()


async def test_texts_are_told_with_content_on_and_no_more_once_it_is_off(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    file = records.path.with_name("audit.db")
    extra = f", content: CONTENT, store: 'sqlite:///{file}'"
    told = {}
    for content in ("true", "false"):
        settings = SETTINGS + f"\naudit: {{path: '{records.path}'{extra.replace('CONTENT', content)}}}"
        if content == "true":
            client = await talked(start, upstream, records, settings)
            rows = (await get(client, "decisions"))["decisions"]
            one = next(row["audit_id"] for row in rows if row["trigger"])
        else:
            client = await start(settings)
        told[content] = SECRET in json.dumps(await get(client, f"decisions/{one}"))

    assert told == {"true": True, "false": False}


async def test_without_a_store_the_page_is_told_what_to_do(start: Start, records: Records) -> None:
    client = await start(f"audit: {{path: '{records.path}', store: null}}")

    error = (await get(client, "overview", 404))["error"]

    assert error["code"] == "audit_store_off"
    assert "audit.store is null" in error["message"]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("overview?span=soon", 400, "span: must be a whole number, got 'soon'"),
        ("decisions?before=-1", 400, "before: must be a whole number"),
        ("decisions?rout=a", 400, "no parameter is called 'rout'; known: action, before, "),
        ("decisions/ffff", 404, "No decision that is kept"),
        ("decisions/%27%20OR%201=1--", 404, "No decision that is kept"),
        ("conversations/ffff", 404, "No decision that is kept is of this conversation"),
    ],
)
async def test_a_mistake_is_told(start: Start, path: str, status: int, told: str) -> None:
    assert told in (await get(await start(), path, status))["error"]["message"]


async def test_a_request_without_traffic_has_no_sums(start: Start) -> None:
    assert (await get(await start(), f"overview?span={10**14}"))["totals"] is None
