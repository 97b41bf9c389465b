"""How many requests are let through at once, who waits, and who is sent away."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy.http.admission import Admission
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, user
from tests.proxy.proxied import Start, post


class Visit:
    """One request: what its client sends, and what it was answered."""

    def __init__(self, admission: Admission, order: list[int], number: int) -> None:
        self.sends: asyncio.Queue[Message] = asyncio.Queue()
        self.answers: list[Message] = []
        self.read: list[Message] = []
        self.done = asyncio.Event()  # set by the test: the application returns
        self.order = order
        self.number = number
        self.task = asyncio.create_task(admission.serve(self._app, {"type": "http"}, self.sends.get, self._send))

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.order.append(self.number)
        while not self.sends.empty():
            self.read.append(await receive())
        await self.done.wait()

    async def _send(self, message: Message) -> None:
        self.answers.append(message)

    def end(self) -> None:
        self.done.set()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def visits(admission: Admission) -> tuple[list[int], Callable[[], Visit]]:
    order: list[int] = []
    made: list[Visit] = []

    def visit() -> Visit:
        made.append(Visit(admission, order, len(made)))
        return made[-1]

    return order, visit


async def test_requests_take_their_turn_in_the_order_in_which_they_came() -> None:
    seen: list[int] = []
    admission = Admission(2, waiting=10, wait_s=60, on_wait=seen.append)
    order, visit = visits(admission)
    all_ = [visit() for _ in range(5)]
    await settled()
    assert (order, admission.running, admission.waiting) == ([0, 1], 2, 3)

    for n, expected in ((1, [0, 1, 2]), (0, [0, 1, 2, 3]), (2, [0, 1, 2, 3, 4])):
        all_[n].end()
        await settled()
        assert order == expected
    for each in all_:
        each.end()
    await asyncio.gather(*(each.task for each in all_))
    assert (admission.running, admission.waiting) == (0, 0)
    assert (max(seen), seen[-1]) == (3, 0)


async def test_what_waits_beyond_the_queue_or_its_time_is_told_when_to_come_again() -> None:
    refused: list[None] = []
    admission = Admission(1, waiting=1, wait_s=0.05, on_refusal=lambda: refused.append(None))
    _, visit = visits(admission)
    first, second, third = visit(), visit(), visit()
    await third.task
    assert not second.task.done()
    await second.task

    for turned_away in (second, third):
        assert turned_away.answers[0]["status"] == 503
        assert dict(turned_away.answers[0]["headers"])[b"retry-after"] == b"1"
        assert b'"overloaded"' in turned_away.answers[1]["body"]
    assert (len(refused), admission.running, admission.waiting) == (2, 1, 0)
    first.end()
    await first.task
    assert admission.running == 0


async def test_a_client_that_leaves_while_it_waits_gives_its_place_up() -> None:
    admission = Admission(1, waiting=2, wait_s=60)
    order, visit = visits(admission)
    first, second, third = visit(), visit(), visit()
    second.sends.put_nowait({"type": "http.request", "body": b"all", "more_body": False})
    second.sends.put_nowait({"type": "http.disconnect"})
    await second.task
    assert second.answers == []

    first.end()
    await settled()
    assert order == [0, 2]
    third.end()
    await third.task
    assert (admission.running, admission.waiting) == (0, 0)


async def test_what_was_heard_while_waiting_is_read_afterwards() -> None:
    admission = Admission(1, waiting=1, wait_s=60)
    _, visit = visits(admission)
    first, second = visit(), visit()
    pieces: list[Message] = [{"type": "http.request", "body": bytes([n]), "more_body": n < 2} for n in range(3)]
    for piece in pieces:
        second.sends.put_nowait(piece)
    await settled()
    assert second.sends.qsize() == 2, "no more than a piece is kept"

    first.end()
    await settled()
    second.end()
    await second.task
    assert second.read == pieces[:1] + pieces[1:3]


@pytest.mark.parametrize("when", ["waiting", "let in", "running"])
async def test_a_cancelled_request_leaves_no_place_taken(when: str) -> None:
    admission = Admission(1, waiting=2, wait_s=60)
    order, visit = visits(admission)
    first, second, third = visit(), visit(), visit()
    await settled()
    if when != "waiting":
        first.end()
        await (settled() if when == "running" else first.task)
    second.task.cancel()
    await asyncio.gather(second.task, return_exceptions=True)
    first.end()
    await settled()

    assert order[-1] == 2
    third.end()
    await third.task
    assert (admission.running, admission.waiting) == (0, 0)


def test_a_limit_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="limit: must be at least 1, got 0"):
        Admission(0, waiting=0, wait_s=0)


async def test_the_proxy_queues_and_then_says_when_to_come_again(start: Start, upstream: FakeUpstream) -> None:
    go = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await go.wait()
        await exchange.answer(b"{}")

    upstream.handler = handler
    client = await start("server: {max_requests: 1, max_waiting: 1}")
    content = body([user("hi")])
    first = asyncio.create_task(post(client, content))
    await upstream.arrival()
    second = asyncio.create_task(post(client, content))
    async with asyncio.timeout(5):
        while b"trimtab_requests_waiting 1.0" not in (await client.get("/metrics")).content:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    third = await post(client, content)
    go.set()

    assert (third.status_code, third.headers["retry-after"]) == (503, "10")
    assert third.json()["error"]["code"] == "overloaded"
    assert [(await first).status_code, (await second).status_code] == [200, 200]
    assert len(upstream.exchanges) == 2
    assert b"trimtab_requests_turned_away_total 1.0" in (await client.get("/metrics")).content
