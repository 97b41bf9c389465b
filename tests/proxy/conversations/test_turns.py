"""A turn in flight is known here at once and elsewhere by its mark, and ends exactly once, whatever the end."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.conversations.turns import Turn, Turns
from tests.proxy.shared_store import SharedStore

DIGEST = b"0123456789abcdef"


@pytest.fixture
def store() -> SharedStore:
    return SharedStore()


@pytest.fixture
async def worker(store: SharedStore) -> AsyncIterator[Callable[..., Turns]]:
    """Makes workers over the one store; they are closed in the end."""
    workers: list[Turns] = []

    def make(**options: float) -> Turns:
        workers.append(Turns(store, **{"ttl_s": 60.0, "poll_s": 0.005, **options}))  # type: ignore[arg-type]
        return workers[-1]

    yield make
    for each in workers:
        await each.close()


async def begin(turns: Turns, store: SharedStore) -> Turn:
    turn = turns.begin(DIGEST)
    await store.add({}, None, turn.mark)
    return turn


async def marked(store: SharedStore) -> bool:
    return DIGEST in (await store.look((), (DIGEST,))).marked


async def test_a_turn_is_known_here_until_it_ends(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker()
    turn = await begin(turns, store)
    assert turns.here((b"other", DIGEST)) == [DIGEST]

    await turn.end()

    assert turns.here((DIGEST,)) == []
    assert not await marked(store)


async def test_ending_twice_ends_once(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker()
    first, second = await begin(turns, store), await begin(turns, store)

    first.release()
    await asyncio.gather(first.end(), first.end())

    assert store.calls.count("unmark") == 1
    assert turns.here((DIGEST,)) == [DIGEST]
    assert await marked(store)
    await second.end()
    assert not await marked(store)


async def test_a_turn_ends_although_its_end_is_cancelled(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker()
    turn = await begin(turns, store)
    store.gate = asyncio.Event()
    ending = asyncio.create_task(turn.end())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert turns.here((DIGEST,)) == []

    store.gate.set()
    await turn.end()

    assert not await marked(store)


async def test_a_mark_on_its_way_out_is_no_turn_elsewhere(store: SharedStore, worker: Callable[..., Turns]) -> None:
    """A client may send its next request before the store has heard of the end."""
    turns = worker()
    turn = await begin(turns, store)
    store.gate = asyncio.Event()
    turn.release()

    assert turns.elsewhere({DIGEST, b"other"}) == {b"other"}

    store.gate.set()
    await turn.end()
    assert turns.elsewhere({DIGEST}) == {DIGEST}


async def test_a_mark_that_could_not_be_removed_is_disregarded_here_while_it_lives(
    store: SharedStore, worker: Callable[..., Turns]
) -> None:
    turns = worker(ttl_s=0.02)
    turn = await begin(turns, store)
    store.down = True
    await turn.end()

    assert turns.elsewhere({DIGEST}) == set()
    await asyncio.sleep(0.04)
    assert turns.elsewhere({DIGEST}) == {DIGEST}


async def test_waiting_ends_with_the_turn_in_the_same_worker(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker()
    turn = await begin(turns, store)
    waiting = asyncio.create_task(turns.wait((DIGEST,), 5))
    await asyncio.sleep(0.02)
    assert not waiting.done()

    turn.release()

    assert await asyncio.wait_for(waiting, 1)


async def test_waiting_ends_with_the_turn_of_another_worker(store: SharedStore, worker: Callable[..., Turns]) -> None:
    mine, theirs = worker(), worker()
    turn = await begin(theirs, store)
    waiting = asyncio.create_task(mine.wait((DIGEST,), 5))
    await asyncio.sleep(0.02)
    assert not waiting.done()

    await turn.end()

    assert await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_waiting_gives_up(store: SharedStore, worker: Callable[..., Turns], elsewhere: bool) -> None:
    mine = worker()
    await begin(worker() if elsewhere else mine, store)

    assert not await mine.wait((DIGEST,), 0.02)


async def test_two_turns_under_one_digest_must_both_end(store: SharedStore, worker: Callable[..., Turns]) -> None:
    mine, theirs = worker(), worker()
    here, there = await begin(mine, store), await begin(theirs, store)
    waiting = asyncio.create_task(mine.wait((DIGEST,), 5))
    await here.end()
    await asyncio.sleep(0.02)
    assert not waiting.done()

    await there.end()

    assert await asyncio.wait_for(waiting, 1)


async def test_with_the_store_down_the_turns_of_this_worker_count(
    store: SharedStore, worker: Callable[..., Turns]
) -> None:
    mine, theirs = worker(), worker()
    await begin(theirs, store)
    store.down = True

    assert await mine.wait((DIGEST,), 1)


async def test_a_mark_is_renewed_while_its_turn_lives(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker(ttl_s=0.06)
    turn = await begin(turns, store)
    store.calls.clear()

    await asyncio.sleep(0.07)

    assert store.calls.count("mark") >= 2
    await turn.end()
    store.calls.clear()
    await asyncio.sleep(0.03)
    assert store.calls == []


async def test_a_renewal_under_way_does_not_outlive_its_turn(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker(ttl_s=0.03)
    turn = await begin(turns, store)
    store.gate = asyncio.Event()
    await asyncio.sleep(0.015)
    assert store.calls[-1] == "mark"
    turn.release()

    store.gate.set()
    await turn.end()

    assert not await marked(store)


async def test_the_turn_of_a_dead_worker_expires(store: SharedStore, worker: Callable[..., Turns]) -> None:
    dead = Turns(store, ttl_s=0.03)
    mark = dead.begin(DIGEST).mark
    await store.add({}, None, mark)
    await dead.close()
    await store.add({}, None, mark)  # as if it had died without a word

    assert await worker().wait((DIGEST,), 1)


async def test_no_turn_is_believed_to_last_for_ever(store: SharedStore, worker: Callable[..., Turns]) -> None:
    turns = worker(ttl_s=0.03, longest_s=0.001)
    turn = await begin(turns, store)

    assert await turns.wait((DIGEST,), 1)
    assert not turn.live


async def test_closing_ends_every_turn(store: SharedStore) -> None:
    turns = Turns(store)
    await begin(turns, store)
    waiting = asyncio.create_task(turns.wait((DIGEST,), 5))
    await asyncio.sleep(0)

    await turns.close()

    assert await asyncio.wait_for(waiting, 1)
    assert not await marked(store)


@pytest.mark.parametrize("name", ["ttl_s", "longest_s", "poll_s"])
def test_times_must_be_positive(store: SharedStore, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: must be more than 0 seconds, got 0"):
        Turns(store, **{name: 0})
