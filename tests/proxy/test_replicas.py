"""Several workers on one store are one proxy: the same bytes, one winner, and nothing lost when a part of it dies."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.fakes.upstream import Exchange, FakeUpstream, running
from tests.proxy.dialogues import Message, assistant, system, user, words
from tests.proxy.replicas import Replica
from tests.proxy.stores.redis_servers import RedisServer
from tests.proxy.talks import Sent, Talk, answer, answering, chunks, dumped, reply, size
from tests.validator import violations

pytestmark = pytest.mark.asyncio(loop_scope="module")

WINDOW = 1000


def settings(state: str, policy: str = "fifo") -> str:
    rules = f"window: {WINDOW}, reserve_output: 0, policy: {policy}, breathing_turns: 0, hold: {{wait_s: 10}}"
    rules += ", recall: {budget: 0}"  # what comes back is the policy's own, and there are two policies here
    noted = "{name: noted, match: {path: /noted}, policy: rwr, keep_prefix: 0, recall: {budget: 0.3}, "
    noted += "cache: {min_tokens: 0}}"
    # Processes that share two cores with others answer late; what a store that is late costs is tested elsewhere.
    return (
        f"state: '{state}'\nstate_timeout_s: 10\nembeddings: {{backend: none}}\ndefaults: {{{rules}}}\n"
        f"routes: [{noted}, {{name: rest}}]\nserver: {{drain_s: 1}}"
    )


def history(name: str, tokens: int) -> list[Message]:
    messages = [system(), user(f"Find out which berth the {name} may use.")]
    while size(dumped(*messages)) < tokens:
        number = len(messages)
        messages += [assistant(f"Berth {number}: {words(20, number)}."), user(f"Why {number}: {words(20, number)}?")]
    return messages


async def audited(replica: Replica, *sent: Sent) -> list[dict[str, Any]]:
    """The audit records of requests, as soon as they are written."""
    async with asyncio.timeout(5):
        while True:
            lines = replica.audit.read_text().splitlines()
            found = {record["audit_id"]: record for record in map(json.loads, lines)}
            if all(one.audit_id in found for one in sent):
                return [found[one.audit_id] for one in sent]
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[FakeUpstream]:
    """One for all tests here, as processes take their time to start."""
    async with running() as fake:
        yield fake


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(
    tmp_path_factory: pytest.TempPathFactory, redis: RedisServer, upstream: FakeUpstream
) -> AsyncIterator[list[Replica]]:
    """Two proxy processes on one Redis. They would cut differently, so that it shows whose cut it is."""
    pair = [
        Replica(tmp_path_factory.mktemp("replica"), settings(redis.url, policy), upstream=upstream.url)
        for policy in ("fifo", "{name: token_cost}")
    ]
    try:
        await asyncio.gather(*(replica.start() for replica in pair))
        yield pair
    finally:
        for replica in pair:
            replica.stop()


async def test_a_conversation_that_alternates_gets_the_same_bytes_as_on_one(
    two: list[Replica], upstream: FakeUpstream
) -> None:
    answering(upstream)
    one, other = two
    async with one.client() as mine, other.client() as theirs:
        alternating = Talk(mine, upstream, history("Halcyon", 500), headers={"x-trimtab-session": "alternating"})
        steady = Talk(mine, upstream, history("Halcyon", 500), headers={"x-trimtab-session": "steady"})
        cuts = 0
        there: list[Sent] = []
        for number in range(12):
            new = [user(f"Question {number}: {words(40, number)}?")] if number else []
            expected = await steady.send(*new)
            # The first worker makes every cut, since the other one's would be another.
            over = 0.85 * WINDOW
            here = number % 2 == 0 or size(expected.raw) >= over or expected.evicted > 0
            sent = await alternating.send(*new, client=mine if here else theirs)
            cuts += sent.evicted > 0
            there += [] if here else [sent]
            assert sent.raw == expected.raw
    assert cuts >= 2
    assert any(record["replayed"] for record in await audited(other, *there)), "and it took part after a cut"


async def test_what_came_back_on_one_stays_on_the_other(two: list[Replica], upstream: FakeUpstream) -> None:
    """Notes hold no text in the store: each worker makes them again from the client's messages, to the last byte."""
    answering(upstream)
    fact = "The code of the red crane is QX-4471, please remember it."
    opening = [system(), user("Help me through the day."), assistant("Gladly."), user(fact), assistant("I shall.")]
    async with two[0].client(path="/noted") as mine, two[1].client(path="/noted") as theirs:
        talk = Talk(mine, upstream, [*opening, *history("Halcyon", 900)[2:], user(f"And? {words(60)}")])
        told = await talk.send()
        assert fact.encode() not in b"".join(told.raw)
        asked = await talk.send(user("What is the code of the red crane?"), client=theirs)
        thanks = [(user(f"Thanks {number}."), (mine, theirs)[number % 2]) for number in range(4)]
        sent = [told, asked, *[await talk.send(new, client=client) for new, client in thanks]]
    assert sum(fact.encode() in raw for raw in asked.raw) == 1, "in a note"
    for before, after in pairwise(sent):
        assert after.raw[: len(before.raw)] == before.raw


async def test_when_both_cut_at_once_both_send_the_winners_form(two: list[Replica], upstream: FakeUpstream) -> None:
    answering(upstream)
    one, other = two
    winners = set()
    async with one.client() as mine, other.client() as theirs:
        for number in range(12):
            talk = Talk(mine, upstream, history(f"Halcyon {number}", 900))
            first, second = (talk, talk.branch()) if number % 2 else (talk.branch(), talk)
            pair = await asyncio.gather(first.send(client=mine), second.send(client=theirs))
            assert pair[0].raw == pair[1].raw
            assert len(pair[0].raw) < len(talk.messages) - 1
            winners.add(tuple(sent.evicted > 0 for sent in pair))
            later = await talk.send(user("And then?"), client=theirs)
            assert later.raw[: len(pair[0].raw)] == pair[0].raw
    assert all(any(pair) for pair in winners)


async def test_a_worker_that_is_killed_holds_a_conversation_up_until_its_mark_expires(
    tmp_path: Path, redis: RedisServer, two: list[Replica], upstream: FakeUpstream
) -> None:
    begun = asyncio.Event()

    async def stuck(exchange: Exchange) -> None:
        if not exchange.json.get("stream"):
            await answer(exchange, upstream.exchanges.index(exchange))
            return
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b"data: %b\n\n" % json.dumps(chunks(reply(exchange, 0, 9), 0)[0]).encode())
        begun.set()
        await exchange.gone.wait()

    upstream.handler = stuck
    doomed = Replica(tmp_path / "doomed", settings(redis.url), upstream=upstream.url)
    await doomed.start(mark_ttl_s=1.5)
    try:
        async with doomed.client() as client, two[0].client() as other:
            talk = Talk(client, upstream, history("Endurance", 780), {"stream": True})
            streaming = asyncio.create_task(client.post("/v1/chat/completions", content=talk.content))
            await asyncio.wait_for(begun.wait(), 5)
            onward = Talk(other, upstream, [*talk.messages, assistant("Ans"), user(f"Stop: {words(300)}")])
            waiting = asyncio.create_task(onward.send())
            await asyncio.sleep(0.1)  # nothing shows from outside that it waits
            assert not waiting.done()
            doomed.kill()
            sent = await asyncio.wait_for(waiting, 8)
            with pytest.raises(httpx2.HTTPError):
                await streaming
    finally:
        doomed.kill()

    assert (sent.action, sent.evicted > 0) == ("trimmed", True), "it waited for the mark, not for its own patience"
    (record,) = await audited(two[0], sent)
    assert 100 < record["held_ms"] < 9_000


async def test_redis_dies_under_load_and_comes_back_and_no_request_fails(
    two: list[Replica], redis: RedisServer, upstream: FakeUpstream
) -> None:
    """200 conversations at once; Redis is gone from their third request to their fourth, and comes back empty."""
    answering(upstream, size=10)
    one, other = two
    killed, back = asyncio.Barrier(201), asyncio.Barrier(201)
    anew: list[Sent] = []

    async def converse(number: int, client: httpx2.AsyncClient) -> Talk:
        talk = Talk(client, upstream, history(f"ship {number}", 860))
        before: tuple[bytes, ...] = ()
        known = 0
        for step in range(4):
            if step == 2:
                await killed.wait()
                await killed.wait()
            if step == 3:
                await back.wait()
                await back.wait()
            new = [user(f"Question {step}: {words(10, step)}?")] if step else []
            length = len(talk.messages) + len(new)
            sent = await talk.send(*new)
            grown = (*before, *dumped(*talk.messages[known:length]))
            if step and sent.evicted == 0:
                assert sent.raw == grown, "on the same worker the bytes stay"
            assert size(sent.raw) < 0.85 * WINDOW
            assert violations(sent.messages) == []
            before, known = sent.raw, length
        return talk

    async def break_and_mend() -> None:
        await killed.wait()
        redis.kill()
        await killed.wait()
        await back.wait()
        moved = [Talk(theirs, upstream, history(f"ship {number}", 860)) for number in range(20)]
        for talk in moved:
            sent = await talk.send()
            assert sent.evicted > 0, "a worker that has never seen the conversation cuts anew"
            assert size(sent.raw) <= 0.7 * WINDOW
            assert violations(sent.messages) == []
            anew.append(sent)
        redis.start()
        await back.wait()

    async with one.client() as mine, other.client() as theirs:
        conversing = [converse(number, mine) for number in range(200)]
        *talks, _ = await asyncio.gather(*conversing, break_and_mend())

    assert len(talks) == 200
    for record in await audited(other, *anew):
        assert record["ledger"] == "missing"
        assert (record["stream_end"], record["faults"]) == ("done", [])


async def test_workers_of_one_command_share_a_file_and_may_all_be_killed(
    tmp_path: Path, upstream: FakeUpstream
) -> None:
    answering(upstream)
    served = Replica(
        tmp_path / "served",
        settings(f"sqlite:///{tmp_path}/state.db"),
        upstream=upstream.url,
        command=("--workers", "2"),
    )
    await served.start()
    try:
        async with served.client() as client:  # with a new connection for each request, which either worker takes
            talks = [Talk(client, upstream, history(f"ship {number}", 900)) for number in range(8)]
            first = await asyncio.gather(*(talk.send() for talk in talks))
            second = await asyncio.gather(*(talk.send(user("And then?")) for talk in talks))
            workers = served.workers()
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(60):  # two workers start at once, which takes seconds of both cores
                while not (served.workers() - workers and await answers(client)):  # noqa: ASYNC110 - processes have no event for it
                    await asyncio.sleep(0.1)
            third = await asyncio.gather(*(talk.send(user("And at last?")) for talk in talks))
    finally:
        served.stop()

    assert len(workers) == 2
    assert all(one.evicted > 0 for one in first)
    for one, two_, three in zip(first, second, third, strict=True):
        assert two_.raw[: len(one.raw)] == one.raw
        assert three.raw[: len(two_.raw)] == two_.raw, "nobody who decided it lives, and still it is the same"


async def answers(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/healthz")).status_code == 200
    except httpx2.TransportError:
        return False
