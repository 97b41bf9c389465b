"""What upstreams taught outlives a worker, and reaches the others, as numbers."""

from typing import Any

import pytest

from proxy.tokens.calibration import Past, start
from proxy.tokens.counts import Counts
from proxy.tokens.ratios import Ratios
from proxy.upstream.lasting import HOUR_S, UNDER_WAY, Lasting
from proxy.upstream.learned import Calibrations, Key
from tests.proxy.shared_store import SharedStore

KEY = Key("secret-route", "secret-model", "ab12")
PRIOR = Ratios(1.15, 1.45, 1.3, 1.4)
PROMPT = Counts(latin=4000, code=500, fixed=100, messages=20)


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


class Worker:
    """One worker's calibrations over a store that others share."""

    def __init__(self, store: SharedStore, **options: Any) -> None:
        self.known = Calibrations()
        self.lasting = Lasting(self.known, store, **{"salt": b"salt", "ttl_s": 86_400.0, **options})

    async def learn(self, requests: int, actual: int = 6000, *, first: int = 0) -> None:
        for number in range(first, first + requests):
            self.known.observe(KEY, PRIOR, PROMPT, actual, digest=b"%d" % number)
            self.lasting.write(KEY, b"%d" % number)
            await self.lasting.close()


@pytest.mark.parametrize(("requests", "taken"), [(1, 1), (2, 2), (7, 4), (64, 64), (65, 65), (100, 65)])
async def test_what_was_learned_is_there_for_the_next_worker(requests: int, taken: int) -> None:
    store = SharedStore()
    await Worker(store, clock=Clock()).learn(requests)
    other = Worker(store, clock=Clock())

    await other.lasting.recall(KEY)

    assert other.known.seen(KEY) == taken
    assert other.known.get(KEY, PRIOR).tokens(PROMPT) == pytest.approx(6000, rel=0.1)


async def test_once_much_is_known_each_hour_is_kept() -> None:
    store, clock = SharedStore(), Clock()
    worker = Worker(store, clock=clock)
    await worker.learn(65)
    clock.now += HOUR_S
    await worker.learn(35, first=65)
    other = Worker(store, clock=clock)

    await other.lasting.recall(KEY)

    assert other.known.seen(KEY) == 66


async def test_a_conversation_goes_on_in_another_worker() -> None:
    store = SharedStore()
    await Worker(store).learn(2)
    other = Worker(store)

    await other.lasting.recall(KEY, [b"0", b"1", b"newer"], b"0")

    assert other.known.past(KEY, [b"0", b"1", b"newer"]) == Past(PROMPT, 6000)
    assert other.known.past(KEY._replace(model="m-2"), [b"1"]) is None


async def test_the_store_is_asked_once_and_then_no_more() -> None:
    store = SharedStore()
    await Worker(store).learn(2)
    other = Worker(store)
    store.calls.clear()

    for _ in range(3):
        await other.lasting.recall(KEY, [b"0", b"1"], b"0")

    assert store.calls == ["look"]


async def test_upstreams_that_never_count_cost_one_look_for_a_conversation() -> None:
    store = SharedStore()
    worker = Worker(store)

    for turn in range(1, 5):
        await worker.lasting.recall(KEY, [b"%d" % n for n in range(turn)], None if turn == 1 else b"1")
    await worker.lasting.recall(KEY, [b"x", b"y"], b"y")

    assert store.calls == ["look"] * 3, "for the model, and for each of two conversations"


@pytest.mark.parametrize(
    "key",
    [
        KEY._replace(route="another"),
        KEY._replace(model="another"),
        KEY._replace(credential="cd34"),
        KEY._replace(credential=None),
        Key("secret-routes", "ecret-model", "ab12"),
    ],
    ids=["route", "model", "credential", "no credential", "another border"],
)
async def test_nobody_gets_what_is_anothers(key: Key) -> None:
    store = SharedStore()
    await Worker(store).learn(4)
    other = Worker(store)

    await other.lasting.recall(key, [b"0", b"3"], b"0")

    assert other.known.get(key, PRIOR) == start(PRIOR)
    assert other.known.past(key, [b"3"]) is None


async def test_another_salt_finds_nothing() -> None:
    store = SharedStore()
    await Worker(store).learn(4)
    other = Worker(store, salt=b"another")

    await other.lasting.recall(KEY, [b"3"], b"3")

    assert other.known.seen(KEY) == 0


async def test_no_name_is_in_what_is_kept() -> None:
    store = SharedStore()
    await Worker(store).learn(8)

    assert store.written
    assert not any(b"secret" in each or b"ab12" in each for each in store.written)


async def test_a_store_that_is_down_costs_nothing_and_is_asked_again() -> None:
    store = SharedStore()
    await Worker(store).learn(4)
    other = Worker(store)
    store.down = True

    await other.lasting.recall(KEY, [b"3"], b"3")
    await other.learn(1)
    assert other.known.seen(KEY) == 1
    store.down = False
    await other.lasting.recall(KEY, [b"3"], b"3")

    assert other.known.seen(KEY) == 4


async def test_damaged_values_are_not_taken_over() -> None:
    store = SharedStore()
    await Worker(store).learn(4)
    keys = [each for each in store.written if len(each) == 32]
    broken = SharedStore()
    await broken.add(dict.fromkeys(keys, b"\x01garbage"), None)
    other = Worker(broken)

    await other.lasting.recall(KEY, [b"3"], b"3")

    assert other.known.seen(KEY) == 0
    assert other.known.past(KEY, [b"3"]) is None


async def test_a_slow_store_is_not_written_to_without_bound() -> None:
    store = SharedStore()
    worker = Worker(store)
    for number in range(3 * UNDER_WAY):
        worker.known.observe(KEY, PRIOR, PROMPT, 6000, digest=b"%d" % number)
        worker.lasting.write(KEY, b"%d" % number)

    await worker.lasting.close()

    assert store.calls.count("add") == UNDER_WAY


async def test_without_a_store_it_lasts_as_long_as_the_worker() -> None:
    lasting = Lasting(Calibrations())
    lasting.calibrations.observe(KEY, PRIOR, PROMPT, 6000, digest=b"1")

    lasting.write(KEY, b"1")
    await lasting.recall(KEY, [b"1"], b"1")

    assert lasting.calibrations.seen(KEY) == 1
