"""Each request finds exactly its own past; a decision is made once and then read."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversations import GENERATIONS, LOOK, Conversations
from proxy.conversations.identity import Chain
from proxy.conversations.known import Known, Status
from proxy.conversations.ledger import Ledger
from proxy.conversations.turns import Turns
from proxy.stores.contract import Store
from proxy.stores.opening import open_store
from proxy.stores.steady import Limits
from proxy.wire.canonical import digest
from tests.proxy.dialogues import Message, assistant, user
from tests.proxy.shared_store import SharedStore

SECRET = "the harbour code is 7341"


def talk(length: int, topic: str = "berths") -> list[Message]:
    return [(user if i % 2 == 0 else assistant)(f"{topic} {i}") for i in range(length)]


@lru_cache(maxsize=5_000)
def _digest(role: str, content: str) -> bytes:
    return digest({"role": role, "content": content})


class Worker(Conversations):
    """A worker over the store, with a clock in the test's hand."""

    def __init__(self, store: Store, *, capacity: int = 10_000) -> None:
        numbers = count(1)
        self.now = 1_000.0
        super().__init__(
            store,
            salt=b"salt",
            ttl_s=3600,
            capacity=capacity,
            clock=lambda: self.now,
            new_id=lambda: f"conversation-{next(numbers)}",
            turns=Turns(store, poll_s=0.005),
        )

    def of(self, messages: Sequence[Message], **variant: str) -> Chain:
        return self.chain([_digest(m["role"], m["content"]) for m in messages], route="main", **variant)  # type: ignore[arg-type]

    async def decide(self, chain: Chain, name: str, drops: Sequence[int] = (1, 2)) -> Known:
        """Replay, decide, commit."""
        ledger = Ledger(decision=name, length=len(chain), drops=frozenset(drops))
        return await self.commit(chain, ledger, await self.replay(chain))

    async def answer(self, chain: Chain) -> Known:
        """One request from beginning to end, in which nothing is decided."""
        known = await self.replay(chain)
        await (await self.begin(chain, known)).end()
        return known


@pytest.fixture
def store() -> SharedStore:
    return SharedStore()


@pytest.fixture
def worker(store: SharedStore) -> Worker:
    return Worker(store)


async def test_nothing_is_known_of_a_new_conversation(worker: Worker) -> None:
    known = await worker.replay(worker.of(talk(5)))

    assert (known.status, known.entry, known.index, known.turns) == (Status.NONE, None, -1, ())
    assert not known.ledger
    assert known.first_seen(4) == 1_000


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the same worker", "in another worker"])
async def test_a_decision_is_found_by_what_continues_it(worker: Worker, store: SharedStore, elsewhere: bool) -> None:
    messages = talk(9)
    await worker.decide(worker.of(messages[:5]), "d1")
    reader = Worker(store) if elsewhere else worker

    known = await reader.replay(reader.of(messages))

    assert (known.status, known.index, known.ledger.decision) == (Status.REPLAYED, 4, "d1")
    assert known.conversation == "conversation-1"


async def test_an_identical_request_sends_the_same_form(worker: Worker) -> None:
    chain = worker.of(talk(5))
    committed = await worker.decide(chain, "d1")

    known = await worker.replay(chain)

    assert known.entry == committed.entry
    assert known.index == 4


async def test_a_branch_and_an_edit_find_their_own_past(worker: Worker) -> None:
    messages = talk(12)
    await worker.decide(worker.of(messages[:5]), "early")
    await worker.decide(worker.of(messages[:9]), "late", (1, 2, 3))

    branch = await worker.replay(worker.of([*messages[:7], user("another way")]))
    edit = await worker.replay(worker.of([user("edited"), *messages[1:]]))

    assert (branch.ledger.decision, branch.conversation) == ("early", "conversation-1")
    assert edit.status is Status.NONE


@pytest.mark.parametrize("variant", [{"session": "s"}, {"variant": "shadow"}, {"tenant": b"other"}], ids=str)
async def test_the_same_words_of_others_are_another_conversation(worker: Worker, variant: dict[str, str]) -> None:
    await worker.decide(worker.of(talk(5)), "d1")

    assert (await worker.replay(worker.of(talk(5), **variant))).status is Status.NONE


async def test_the_first_writer_wins_and_the_loser_gets_its_form(worker: Worker, store: SharedStore) -> None:
    other = Worker(store)
    chain = worker.of(talk(5))
    mine, theirs = await asyncio.gather(worker.decide(chain, "mine", (1,)), other.decide(chain, "theirs", (2,)))

    assert mine.entry == theirs.entry
    assert mine.ledger.decision in ("mine", "theirs")
    assert (await Worker(store).replay(chain)).entry == mine.entry


async def test_ten_workers_at_once_agree(store: SharedStore) -> None:
    workers = [Worker(store) for _ in range(10)]
    chain = workers[0].of(talk(30))

    ends = await asyncio.gather(*(each.decide(chain, f"d{n}", (n,)) for n, each in enumerate(workers, 1)))

    assert len({end.ledger.decision for end in ends}) == 1


async def test_a_request_that_decides_nothing_does_not_stop_a_decision(worker: Worker, store: SharedStore) -> None:
    """The same messages to a model with a larger window: its entry is there first, and empty."""
    chain = worker.of(talk(5))
    late = await worker.replay(chain)
    await Worker(store).answer(chain)

    committed = await worker.commit(chain, Ledger(decision="d1", drops=frozenset({1})), late)

    assert committed.ledger.decision == "d1"
    assert (await Worker(store).replay(chain)).ledger.decision == "d1"


async def test_a_retry_decides_again_about_the_same_messages(worker: Worker, store: SharedStore) -> None:
    messages = talk(5)
    chain = worker.of(messages)
    turn = await worker.begin(chain, await worker.replay(chain), Ledger(decision="d1", drops=frozenset({1})))

    retried = await worker.commit(chain, Ledger(decision="d2", drops=frozenset({1, 2, 3})), turn.known)
    await turn.end()

    assert retried.ledger.decision == "d2"
    for each in (worker, Worker(store)):
        for asked in (messages, [*messages, assistant("ok"), user("more")]):
            known = await each.replay(each.of(asked))
            assert (known.ledger.decision, known.conversation) == ("d2", "conversation-1")


async def test_a_worker_learns_of_a_later_decision_about_what_it_knows(worker: Worker, store: SharedStore) -> None:
    chain = worker.of(talk(5))
    await worker.decide(chain, "d1")
    await Worker(store).decide(chain, "d2")

    assert (await worker.replay(chain)).ledger.decision == "d2"


async def test_decisions_about_one_prefix_are_not_without_end(worker: Worker, store: SharedStore) -> None:
    chain = worker.of(talk(5))
    for number in range(GENERATIONS + 2):
        await worker.decide(chain, f"d{number}")

    assert (await worker.replay(chain)).ledger.decision == f"d{GENERATIONS + 1}"
    assert (await Worker(store).replay(chain)).ledger.decision == f"d{GENERATIONS - 1}"


async def test_a_conversation_is_followed_through_a_thousand_messages_by_workers_in_turn(store: SharedStore) -> None:
    workers = [Worker(store), Worker(store)]
    messages = talk(1_001)
    await workers[0].decide(workers[0].of(messages[:3]), "d1")
    store.asked.clear()
    store.calls.clear()

    for turn, length in enumerate(range(5, 1_001, 2)):
        each = workers[turn % 2]
        each.now += 10
        known = await each.answer(each.of(messages[:length]))
        assert (known.ledger.decision, known.index) == ("d1", length - 3)

    assert max(store.asked) <= 2 * LOOK
    assert store.calls.count("look") == len(store.asked) == 498
    assert known.first_seen(0) == 1_000
    assert known.first_seen(998) == int(each.now)


async def test_one_round_trip_finds_and_one_writes(worker: Worker, store: SharedStore) -> None:
    messages = talk(2 * LOOK)
    await worker.answer(worker.of(messages[:-4]))
    for each in (worker, Worker(store)):
        store.calls.clear()
        chain = each.of(messages)
        known = await each.replay(chain)
        assert store.calls == ["look"]
        turn = await each.begin(chain, known, Ledger(decision="d", drops=frozenset({1})))
        assert store.calls == ["look", "add"]
        await turn.end()


async def test_what_lies_further_back_costs_a_second_round_trip(store: SharedStore) -> None:
    messages = talk(3 * LOOK)
    writer, reader = Worker(store), Worker(store)
    await writer.decide(writer.of(messages[:10]), "d1")
    store.calls.clear()

    known = await reader.replay(reader.of(messages))

    assert known.ledger.decision == "d1"
    assert store.calls == ["look", "look"]


async def test_an_older_entry_of_its_own_does_not_hide_a_newer_one_elsewhere(store: SharedStore) -> None:
    messages = talk(4 * LOOK)
    mine, theirs = Worker(store), Worker(store)
    await mine.decide(mine.of(messages[:5]), "old")
    await theirs.decide(theirs.of(messages[:7]), "new")

    assert (await mine.replay(mine.of(messages[:9]))).ledger.decision == "new"
    assert (await mine.replay(mine.of(messages))).ledger.decision == "new"


async def test_with_the_store_down_a_worker_serves_what_it_knows(worker: Worker, store: SharedStore) -> None:
    messages = talk(9)
    await worker.decide(worker.of(messages[:5]), "d1")
    store.down = True

    known = await worker.replay(worker.of(messages[:7]))
    turn = await worker.begin(worker.of(messages[:7]), known)
    later = await worker.replay(worker.of(messages))
    stranger = await Worker(store).replay(worker.of(messages))

    assert (known.status, known.store_failed, known.ledger.decision) == (Status.REPLAYED, True, "d1")
    assert (later.index, later.turns) == (6, (worker.of(messages[:7])[-1],))
    assert (stranger.status, stranger.store_failed) == (Status.MISSING, True)
    await turn.end()


async def test_a_decision_made_while_the_store_is_down_stands_in_its_worker(worker: Worker, store: SharedStore) -> None:
    messages = talk(9)
    store.down = True
    decided = await worker.decide(worker.of(messages[:5]), "d1")

    assert decided.store_failed
    assert (await worker.replay(worker.of(messages))).ledger.decision == "d1"


async def test_with_the_store_down_identical_requests_in_one_worker_send_one_form(
    worker: Worker, store: SharedStore
) -> None:
    chain = worker.of(talk(5))
    store.down = True

    one, other = await asyncio.gather(worker.decide(chain, "one", (1,)), worker.decide(chain, "other", (2,)))
    going_on = await worker.begin(chain, Known())

    assert one.entry == other.entry == going_on.known.entry
    going_on.release()


async def test_what_others_wrote_meanwhile_stands_once_the_store_is_back(worker: Worker, store: SharedStore) -> None:
    chain = worker.of(talk(5))
    store.down = True
    await worker.decide(chain, "mine")
    store.down = False
    theirs = await Worker(store).decide(chain, "theirs")
    standing = (await store.look((chain[-1],))).values[0]
    assert standing is not None

    worker.settled({chain[-1]: standing, b"of no conversation": b"x"})

    assert (await worker.replay(chain)).entry == theirs.entry


async def test_an_entry_of_another_version_is_as_good_as_none(worker: Worker, store: SharedStore) -> None:
    chain = worker.of(talk(5))
    await store.add({chain[2]: b"\xff of the future", chain[4]: b"\xff of the future"}, None)

    known = await worker.replay(chain)
    committed = await worker.commit(chain, Ledger(decision="d1", drops=frozenset({1})), known)

    assert known.status is Status.NONE
    assert committed.ledger.decision == "d1"
    assert (await Worker(store).replay(chain)).ledger.decision == "d1"


async def test_an_entry_expires(worker: Worker) -> None:
    chain = worker.of(talk(5))
    await worker.decide(chain, "d1")
    worker.now += 3_601

    assert worker._here(chain) is None


async def test_only_what_goes_on_beyond_a_turn_belongs_to_it(worker: Worker, store: SharedStore) -> None:
    messages = talk(7)
    chain = worker.of(messages[:5])
    turn = await worker.begin(chain, await worker.replay(chain))

    for each in (worker, Worker(store)):
        beyond = await each.replay(each.of(messages))
        identical = await each.replay(chain)
        shorter = await each.replay(chain[:3])
        sibling = await each.replay(each.of([*messages[:4], user("instead")]))
        elsewhere = await each.replay(each.of(messages, session="other"))
        assert beyond.turns == (chain[-1],)
        assert [known.turns for known in (identical, shorter, sibling, elsewhere)] == [()] * 4

    await turn.end()
    assert (await worker.replay(worker.of(messages))).turns == ()


async def test_waiting_and_then_going_on(worker: Worker) -> None:
    messages = talk(7)
    first = await worker.begin(worker.of(messages[:5]), await worker.replay(worker.of(messages[:5])))
    known = await worker.replay(worker.of(messages))
    assert not await worker.wait(known.turns, 0.01)
    waiting = asyncio.create_task(worker.wait(known.turns, 5))

    first.release()

    assert await asyncio.wait_for(waiting, 1)
    assert (await worker.replay(worker.of(messages))).turns == ()


async def test_a_turn_that_could_not_begin_is_none(worker: Worker, store: SharedStore) -> None:
    messages = talk(7)
    chain = worker.of(messages[:5])
    known = await worker.replay(chain)
    store.gate = asyncio.Event()
    beginning = asyncio.create_task(worker.begin(chain, known))
    await asyncio.sleep(0.01)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning

    store.gate.set()

    assert (await worker.replay(worker.of(messages))).turns == ()
    await worker.close()


async def test_a_lease_is_held_by_one_and_given_back(worker: Worker, store: SharedStore) -> None:
    async with worker.lease(b"summary", 60) as mine, Worker(store).lease(b"summary", 60) as theirs:
        assert (mine, theirs) == (True, False)
    async with Worker(store).lease(b"summary", 60) as theirs:
        assert theirs
    store.down = True
    async with worker.lease(b"other", 60) as mine:
        assert not mine


async def test_no_word_of_a_message_reaches_the_store(worker: Worker, store: SharedStore) -> None:
    messages = [{**message, "content": f"{message['content']} {SECRET}"} for message in talk(21)]
    for length in range(1, 22, 2):
        chain = worker.of(messages[:length], session=f"session {SECRET}")
        ledger = Ledger(decision="d", length=length, drops=frozenset({1})) if length > 5 else None
        await (await worker.begin(chain, await worker.replay(chain), ledger)).end()

    assert len(store.written) > 20
    for word in SECRET.encode().split():
        assert not any(word in written for written in store.written if len(word) > 3)


async def test_memory_holds_as_many_conversations_as_entries_and_a_kilobyte_for_each(store: SharedStore) -> None:
    """So 10,000 conversations of 100 messages stay under 10 MB, whatever became of them before."""
    size = 100
    worker = Worker(store, capacity=size)
    for length in range(49, 100, 10):
        for number in range(size):
            chain = worker.of(talk(length, f"talk {number}"))
            known = await worker.replay(chain)
            drops = frozenset(range(1, length - 8, 2)) if length < 60 else known.ledger.drops
            await worker.commit(chain, Ledger(decision=f"{number:016x}", length=length, drops=drops), known)

    assert worker.memories["decisions"]().bytes < size * 1_000
    store.down = True
    for number in range(size):
        assert (await worker.replay(worker.of(talk(99, f"talk {number}")))).index == 98


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/state.db"])
async def test_every_kind_of_store_will_do(url: str, tmp_path: Path) -> None:
    """With one behind time limits as an installation has it, opened by two workers where it can be shared."""
    limits = Limits(call_s=20)
    stores = [open_store(url.format(tmp_path), limits=limits) for _ in range(2 if url != "memory://" else 1)]
    workers = [Worker(store) for store in stores]
    messages = talk(2 * LOOK + 5)
    try:
        for store in stores:
            await store.open()
        first, last = workers[0], workers[-1]
        await first.decide(first.of(messages[:5]), "d1")
        known = await last.replay(last.of(messages))
        turn = await last.begin(last.of(messages), known, Ledger(decision="d2", drops=frozenset({1, 2})))
        more = first.of([*messages, assistant("ok"), user("more")])

        held = await first.replay(more)
        assert (known.ledger.decision, held.ledger.decision, len(held.turns)) == ("d1", "d2", 1)
        assert not await first.wait(held.turns, 0.01)
        await turn.end()
        assert (await first.replay(more)).turns == ()
    finally:
        for each in workers:
            await each.close()
        for store in stores:
            await store.close()


REQUESTS = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6), st.booleans(), st.integers(0, 1)), max_size=20)


@settings(max_examples=60, deadline=None)
@given(REQUESTS)
def test_every_worker_finds_the_latest_decision_about_the_longest_prefix(
    requests: list[tuple[int, int, bool, int]],
) -> None:
    """Against a plain dictionary: two branches, two workers, decisions in any order."""

    async def run() -> None:
        store = SharedStore()
        workers = [Worker(store), Worker(store)]
        decided: dict[bytes, str] = {}
        for number, (branch, length, decides, who) in enumerate(requests):
            worker = workers[who]
            chain = worker.of([*talk(3), *talk(5, f"branch {branch}")][:length])
            expected = next((decided[d] for d in reversed(chain) if d in decided), "")
            known = await worker.replay(chain)
            assert known.ledger.decision == expected
            if decides and known.generation < GENERATIONS - 2:
                await worker.commit(chain, Ledger(decision=f"d{number}", drops=frozenset({0})), known)
                decided[chain[-1]] = f"d{number}"
            else:
                await (await worker.begin(chain, known)).end()
                decided.setdefault(chain[-1], expected)

    asyncio.run(run())
