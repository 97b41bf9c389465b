"""While a response streams, nothing new is decided about its conversation; and nobody else has to wait for that."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import Message, assistant, system, user, words
from tests.proxy.proxied import Records, Start
from tests.proxy.talks import Sent, Talk, answer, chunks, dumped, reply, size
from tests.validator import violations

WINDOW = 2000
GIANT = user(f"Read all of this: {words(1500)}")


def settings(wait_s: float = 5.0) -> str:
    rules = f"window: {WINDOW}, reserve_output: 0, policy: fifo, breathing_turns: 0, hold: {{wait_s: {wait_s}}}"
    return f"defaults: {{{rules}}}"


def history(tokens: int) -> list[Message]:
    """A conversation of at least so many tokens, by one exchange of about 70."""
    messages = [system(), user("Find out which berth the Halcyon may use.")]
    while size(dumped(*messages)) < tokens:
        number = len(messages)
        messages += [assistant(f"Berth {number}: {words(30, number)}."), user(f"Why {number}: {words(30, number)}?")]
    return messages


@dataclass
class Slow:
    """An upstream whose answers to requests with `user: slow` stop in the middle until `go` is set."""

    upstream: FakeUpstream
    go: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    exchange: Exchange | None = None

    async def __call__(self, exchange: Exchange) -> None:
        number = self.upstream.exchanges.index(exchange)
        if exchange.json.get("user") != "slow":
            await answer(exchange, number)
            return
        self.exchange = exchange
        events = [json.dumps(chunk).encode() for chunk in chunks(reply(exchange, number, 30), number)]
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(b"data: %b\n\n" % events[0])
        self.begun.set()
        await self.go.wait()
        for event in (*events[1:], b"[DONE]"):
            await exchange.chunk(b"data: %b\n\n" % event)
        await exchange.chunk(b"")


@pytest.fixture
def slow(upstream: FakeUpstream) -> Slow:
    upstream.handler = Slow(upstream)
    return upstream.handler


@asynccontextmanager
async def streaming(talk: Talk, slow: Slow) -> AsyncIterator[httpx2.Response]:
    """The conversation's last message is being answered, ever more slowly; the turn ends with the block."""
    content = json.dumps({**json.loads(talk.content), "stream": True, "user": "slow"}).encode()
    async with talk.client.stream("POST", "/v1/chat/completions", content=content) as response:
        async with asyncio.timeout(5):
            await slow.begun.wait()
        yield response
        slow.go.set()
        async for _ in response.aiter_raw():
            pass


def onward(talk: Talk, *new: Message) -> Talk:
    """A request that goes on from what is still being answered."""
    return talk.branch(None, assistant("Ans"), *new)


async def test_what_fits_is_sent_at_once_as_it_is_and_nothing_is_decided(
    start: Start, upstream: FakeUpstream, slow: Slow, records: Records
) -> None:
    talk = Talk(await start(settings()), upstream, history(1625))
    async with streaming(talk, slow):
        second = onward(talk, user(f"Stop! {words(100)}"))
        sent = await second.send()

    assert 0.85 * WINDOW < size(sent.raw) < WINDOW, "over the threshold and within the budget"
    assert sent.raw == dumped(*second.messages[:-1])
    assert sent.action == "held"
    record, _ = await records.get(2)
    assert (record["action"], record["trigger"], record["held_ms"]) == ("held", None, 0)


async def test_what_does_not_fit_is_trimmed_for_itself_and_the_ledger_stays(
    start: Start, upstream: FakeUpstream, slow: Slow, records: Records
) -> None:
    talk = Talk(await start(settings(wait_s=0.05)), upstream, history(1700))
    first = await talk.send()
    talk.messages.append(user("And then?"))
    async with streaming(talk, slow):
        sent = await onward(talk, GIANT).send()
    later = await onward(talk, user("Never mind.")).send()

    assert first.evicted > 0
    assert sent.action == "held"
    assert sent.evicted > 0
    assert size(sent.raw) <= WINDOW
    assert violations(sent.messages) == []
    assert later.raw[: len(first.raw)] == first.raw, "the cut of the request that could not wait is forgotten"
    assert later.evicted == 0
    cut, alone, _, after = await records.get(4)
    assert alone["held_ms"] >= 50
    assert after["replayed"]["audit_id"] == cut["audit_id"]


async def test_what_does_not_fit_is_trimmed_as_ever_once_the_turn_has_ended(
    start: Start, upstream: FakeUpstream, slow: Slow, records: Records
) -> None:
    talk = Talk(await start(settings()), upstream, history(1500))
    third = onward(talk, GIANT)
    async with streaming(talk, slow):
        waiting = asyncio.create_task(third.send())
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
    sent = await waiting
    later = await third.send(user("Well?"))

    assert sent.action == "trimmed"
    assert sent.evicted > 0
    assert later.evicted == 0, "it was committed"
    assert later.raw[: len(sent.raw)] == sent.raw
    _, record, _ = await records.get(3)
    assert record["held_ms"] >= 90


async def test_waiting_can_be_turned_off(start: Start, upstream: FakeUpstream, slow: Slow, records: Records) -> None:
    talk = Talk(await start(settings(wait_s=0)), upstream, history(1500))
    async with streaming(talk, slow):
        sent = await onward(talk, GIANT).send()

    assert sent.action == "held"
    assert sent.evicted > 0
    assert (await records.get(2))[0]["held_ms"] < 50


async def test_siblings_with_the_same_opening_do_not_wait_for_each_other(
    start: Start, upstream: FakeUpstream, slow: Slow, records: Records
) -> None:
    opening = history(1700)
    async with httpx2.AsyncClient(base_url=(await start(settings())).base_url, trust_env=False, timeout=20) as client:
        talk = Talk(client, upstream, [*opening[:-1], user("What of the first of them?")])
        spread = []
        async with streaming(talk, slow):
            for attempt in range(3):  # a busy machine may hold one of them up
                siblings = [talk.branch(-1, user(f"And what of number {attempt}.{n}?")) for n in range(10)]
                arrivals: list[float] = []
                upstream.handler = timed(slow, arrivals)
                sent = await asyncio.gather(*(sibling.send() for sibling in siblings))
                assert {one.action for one in sent} == {"trimmed"}
                assert all(one.evicted > 0 for one in sent)
                spread.append(max(arrivals) - min(arrivals))
                if spread[-1] < 0.05:
                    break
        assert min(spread) < 0.05
    for record in await records.get(11):
        assert record["held_ms"] == 0


def timed(handler: Callable[[Exchange], Awaitable[None]], arrivals: list[float]) -> Callable[..., Awaitable[None]]:
    async def noting(exchange: Exchange) -> None:
        arrivals.append(asyncio.get_running_loop().time())
        await handler(exchange)

    return noting


async def test_other_conversations_and_the_same_request_again_go_on_as_ever(
    start: Start, upstream: FakeUpstream, slow: Slow, records: Records
) -> None:
    talk = Talk(await start(settings()), upstream, history(1700))
    async with streaming(talk, slow):
        same = await talk.branch().send()
        stranger = talk.branch()
        stranger.messages[1] = user("Another task.")
        other = await stranger.send()
        slow_one = slow.exchange

    assert slow_one is not None
    assert json.loads(bytes(slow_one.body))["messages"] == same.messages, "it replays what the one in flight was cut to"
    assert (same.action, same.evicted) == ("trimmed", 0)
    assert (other.action, other.evicted > 0) == ("trimmed", True)
    assert all(record["held_ms"] == 0 for record in await records.get(3))


async def abort(response: httpx2.Response, slow: Slow) -> None:
    await response.aclose()


async def reset(response: httpx2.Response, slow: Slow) -> None:
    assert slow.exchange is not None
    slow.exchange.reset()


async def broken_off(response: httpx2.Response, slow: Slow) -> None:
    assert slow.exchange is not None
    slow.exchange.close()


@pytest.mark.parametrize(
    ("end", "named"),
    [
        pytest.param(abort, "client_gone", id="the client goes"),
        pytest.param(reset, "upstream_error", id="the upstream resets"),
        pytest.param(broken_off, "upstream_error", id="the upstream breaks off"),
    ],
)
async def test_however_a_turn_ends_who_waited_for_it_goes_on(
    start: Start,
    upstream: FakeUpstream,
    slow: Slow,
    records: Records,
    end: Callable[[httpx2.Response, Slow], Awaitable[None]],
    named: str,
) -> None:
    talk = Talk(await start(settings()), upstream, history(1500))
    third = onward(talk, GIANT)
    waiting: asyncio.Task[Sent]
    try:
        async with streaming(talk, slow) as response:
            waiting = asyncio.create_task(third.send())
            await asyncio.sleep(0.05)  # nothing shows from outside that it waits
            assert not waiting.done()
            await end(response, slow)
            sent = await asyncio.wait_for(waiting, 3)
    except (httpx2.StreamError, httpx2.RemoteProtocolError, httpx2.ReadError):
        pass

    assert (sent.action, sent.evicted > 0) == ("trimmed", True)
    ends: list[Any] = [record["stream_end"] for record in await records.get(2)]
    assert ends[0] == named
