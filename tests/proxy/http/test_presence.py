import asyncio

import pytest
from starlette.types import Message, Receive

from proxy.errors import ClientGone
from proxy.http.presence import Presence


def receiver(left: asyncio.Event) -> Receive:
    """The receiving end of a client that leaves when `left` is set."""

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    return receive


async def test_presence_ends_the_work_of_a_client_that_leaves() -> None:
    left, cleaned = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with Presence(receiver(left)):
            left.set()
            try:
                await asyncio.sleep(60)
            finally:
                cleaned.set()

    with pytest.raises(ClientGone):
        await work()
    assert cleaned.is_set()
    await asyncio.sleep(0)  # nothing of the cancellation is left over
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_departure_that_comes_with_the_works_end_is_one() -> None:
    async def work() -> None:
        async with Presence(receiver(asyncio.Event())) as presence:
            presence._gone = True
            presence._task.cancel()

    with pytest.raises(ClientGone):
        await work()
    await asyncio.sleep(0)  # nothing of the cancellation is left over


async def test_errors_of_the_work_are_its_own() -> None:
    with pytest.raises(ValueError, match="work"):
        async with Presence(receiver(asyncio.Event())):
            raise ValueError("work")


async def test_a_settled_answer_outlives_its_client() -> None:
    left = asyncio.Event()
    async with Presence(receiver(left)) as presence:
        presence.settle()
        left.set()
        await asyncio.sleep(0.01)
