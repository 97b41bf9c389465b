"""What an audit record lists of a decision about very many slots."""

from collections import Counter

import pytest

from tests.cases.trimmed import trim
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import body, dialogue, route
from tests.proxy.proxied import Records, Start, post

TALK = dialogue(60, size=10)


def test_a_few_are_listed_and_the_rest_is_summed_by_action_and_role() -> None:
    outcome = trim(TALK, route(window=1000)).outcome
    whole, some = outcome.record(everything=True), outcome.record(everything=True, most=5)

    assert whole["slots_unlisted"] == []
    rows = list(whole["slots"])  # type: ignore[call-overload]
    listed, rest = list(some["slots"]), list(some["slots_unlisted"])  # type: ignore[call-overload]
    assert Counter(row["action"] for row in listed) == {"keep": 5, "evict": 5}
    assert [row for row in rows if row in listed] == listed, "the oldest of each, in their order"
    for name, own in (("slots", lambda row: 1), ("tokens", lambda row: row["tokens"])):
        sums: Counter[tuple[str, str]] = Counter()
        for row in rows:
            sums[row["action"], row["role"]] += own(row) if row not in listed else 0
        assert {(row["action"], row["role"]): row[name] for row in rest} == +sums


@pytest.mark.parametrize("most", [0, 3])
async def test_a_setting_says_how_many(start: Start, upstream: FakeUpstream, records: Records, most: int) -> None:
    client = await start(
        f"defaults: {{window: 1000, reserve_output: 0, policy: fifo}}\n"
        f"audit: {{path: '{records.path}', max_slots: {most}}}"
    )

    await post(client, body(TALK))

    (record,) = await records.get()
    listed, rest = record["slots"], record["slots_unlisted"]
    assert len(listed) == (most or record["slots_evicted"])
    assert len(listed) + sum(row["slots"] for row in rest) == record["slots_evicted"]
    assert {row["action"] for row in (*listed, *rest)} == {"evict"}
