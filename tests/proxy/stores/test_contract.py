"""What every store promises, held by every backend."""

import asyncio
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.stores.contract import Mark, StoreError
from tests.proxy.stores.conftest import Bench

SHORT_S = 0.25  # really waited for where a server keeps the time, so long enough for a busy machine to look in between
LONG_S = 60.0

_rounds = count()


async def test_what_was_added_is_found_in_the_order_asked(bench: Bench) -> None:
    await bench.store.add({b"a": b"1", b"b": b"2"}, LONG_S)

    found = await bench.store.look([b"b", b"nobody", b"a", b"b"])

    assert found.values == (b"2", None, b"1", b"2")
    assert found.marked == frozenset()


async def test_nothing_asked_is_nothing_found(bench: Bench) -> None:
    assert (await bench.store.look([])).values == ()
    assert await bench.store.add({}, LONG_S) == {}


async def test_first_writer_wins(bench: Bench) -> None:
    assert await bench.store.add({b"k": b"first"}, LONG_S) == {b"k": b"first"}
    assert await bench.store.add({b"k": b"second", b"new": b"n"}, LONG_S) == {b"k": b"first", b"new": b"n"}
    assert (await bench.store.look([b"k", b"new"])).values == (b"first", b"n")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(bytes(range(256)), bytes(reversed(range(256))), id="every byte"),
        pytest.param(b"\x00" * 32, b"", id="empty value"),
        pytest.param(b"", b"v", id="empty key"),
        pytest.param(b"*?[a-z]{tag}\r\n", b"\r\n$5\r\n", id="glob, hash tag, protocol"),
        pytest.param(b"large", b"\xff" * 3_000_000, id="3 MB"),
        pytest.param("schlüssel 键".encode("utf-16"), "值".encode(), id="not UTF-8"),
    ],
)
async def test_keys_and_values_are_opaque(bench: Bench, key: bytes, value: bytes) -> None:
    assert await bench.store.add({key: value}, LONG_S) == {key: value}
    assert await bench.store.add({key: b"other"}, LONG_S) == {key: value}
    assert (await bench.store.look([key])).values == (value,)


async def test_values_expire_and_can_be_written_anew(bench: Bench) -> None:
    await bench.store.add({b"short": b"1"}, SHORT_S)
    await bench.store.add({b"long": b"2"}, LONG_S)
    await bench.store.add({b"ever": b"3"}, None)
    await bench.elapse(SHORT_S * 1.1)

    assert (await bench.store.look([b"short", b"long", b"ever"])).values == (None, b"2", b"3")
    assert await bench.store.add({b"short": b"new"}, LONG_S) == {b"short": b"new"}
    assert (await bench.store.look([b"short"])).values == (b"new",)


async def test_a_late_writer_does_not_lengthen_a_life(bench: Bench) -> None:
    await bench.store.add({b"k": b"1"}, SHORT_S)
    await bench.store.add({b"k": b"2"}, LONG_S)
    await bench.elapse(SHORT_S * 1.1)

    assert (await bench.store.look([b"k"])).values == (None,)


@pytest.mark.parametrize("ttl_s", [1e-9, 1e12, float("inf")])
async def test_any_positive_life_is_taken(bench: Bench, ttl_s: float) -> None:
    assert await bench.store.add({b"k": b"v"}, ttl_s) == {b"k": b"v"}
    await bench.store.unmark(b"m", b"t")


async def test_values_marks_and_leases_do_not_meet(bench: Bench) -> None:
    key = b"same"
    token = await bench.store.lease(key, LONG_S)
    assert token is not None
    await bench.store.add({}, LONG_S, Mark(key, b"turn", LONG_S))

    found = await bench.store.look([key], [key])
    assert found.values == (None,)
    assert found.marked == {key}

    assert await bench.store.add({key: b"v"}, LONG_S) == {key: b"v"}
    await bench.store.unmark(key, b"turn")
    await bench.store.release(key, token)
    assert (await bench.store.look([key], [key])).values == (b"v",)


async def test_a_mark_lives_until_its_turn_ends(bench: Bench) -> None:
    await bench.store.add({b"k": b"v"}, LONG_S, Mark(b"m", b"one", LONG_S))
    await bench.store.add({}, None, Mark(b"m", b"two", LONG_S))
    assert (await bench.store.look([], [b"m", b"other"])).marked == {b"m"}

    await bench.store.unmark(b"m", b"one")
    assert (await bench.store.look([], [b"m"])).marked == {b"m"}

    await bench.store.unmark(b"m", b"two")
    await bench.store.unmark(b"m", b"two")
    assert (await bench.store.look([], [b"m"])).marked == frozenset()


async def test_a_mark_expires_by_itself(bench: Bench) -> None:
    await bench.store.add({}, None, Mark(b"m", b"turn", SHORT_S))
    assert (await bench.store.look([], [b"m"])).marked == {b"m"}

    await bench.elapse(SHORT_S * 1.1)
    assert (await bench.store.look([], [b"m"])).marked == frozenset()


async def test_a_short_mark_does_not_outlive_itself_through_a_long_one(bench: Bench) -> None:
    await bench.store.add({}, None, Mark(b"m", b"short", SHORT_S))
    await bench.store.add({}, None, Mark(b"m", b"long", LONG_S))
    await bench.store.unmark(b"m", b"long")
    assert (await bench.store.look([], [b"m"])).marked == {b"m"}

    await bench.elapse(SHORT_S * 1.1)
    assert (await bench.store.look([], [b"m"])).marked == frozenset()


async def test_a_long_mark_is_not_cut_short_by_a_short_one(bench: Bench) -> None:
    await bench.store.add({}, None, Mark(b"m", b"long", LONG_S))
    await bench.store.add({}, None, Mark(b"m", b"short", SHORT_S))
    await bench.elapse(SHORT_S * 1.1)

    assert (await bench.store.look([], [b"m"])).marked == {b"m"}


async def test_a_lease_has_one_holder(bench: Bench) -> None:
    token = await bench.store.lease(b"l", LONG_S)
    assert token is not None
    assert await bench.store.lease(b"l", LONG_S) is None
    assert await bench.store.lease(b"other", LONG_S) is not None

    await bench.store.release(b"l", b"not the token")
    assert await bench.store.lease(b"l", LONG_S) is None

    await bench.store.release(b"l", token)
    assert await bench.store.lease(b"l", LONG_S) not in (None, token)


async def test_a_lease_that_expired_is_not_released_by_its_old_holder(bench: Bench) -> None:
    old = await bench.store.lease(b"l", SHORT_S)
    assert old is not None
    await bench.elapse(SHORT_S * 1.1)
    assert await bench.store.lease(b"l", LONG_S) is not None

    await bench.store.release(b"l", old)
    assert await bench.store.lease(b"l", LONG_S) is None


async def test_purge_forgets_everything_and_counts_values(bench: Bench) -> None:
    keys = [b"%d" % number for number in range(2500)]
    await bench.store.add(dict.fromkeys(keys, b"v"), LONG_S, Mark(b"m", b"t", LONG_S))
    await bench.store.lease(b"l", LONG_S)

    assert await bench.store.purge() == 2500

    found = await bench.store.look(keys, [b"m"])
    assert set(found.values) == {None}
    assert found.marked == frozenset()
    assert await bench.store.lease(b"l", LONG_S) is not None
    assert await bench.store.purge() == 0


async def test_of_many_writers_at_once_one_wins_everywhere(bench: Bench) -> None:
    keys = [b"race%d" % number for number in range(20)]

    standing = await asyncio.gather(
        *(bench.store.add(dict.fromkeys(keys, b"writer %d" % writer), LONG_S) for writer in range(30))
    )

    found = (await bench.store.look(keys)).values
    assert all(tuple(each[key] for key in keys) == found for each in standing)


async def test_of_many_who_want_a_lease_one_gets_it(bench: Bench) -> None:
    tokens = await asyncio.gather(*(bench.store.lease(b"l", LONG_S) for _ in range(30)))

    assert sum(token is not None for token in tokens) == 1


async def test_two_openings_of_one_store_see_each_other(bench: Bench, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["bench"] == "memory":
        pytest.skip("memory is one process's own")
    other = bench.another()
    await other.open()
    await bench.store.add({b"k": b"mine"}, LONG_S, Mark(b"m", b"t", LONG_S))

    assert await other.add({b"k": b"theirs"}, LONG_S) == {b"k": b"mine"}
    assert (await other.look([b"k"], [b"m"])).marked == {b"m"}
    await other.close()


async def test_cancelled_calls_leave_the_store_whole(bench: Bench) -> None:
    """Each was done or was not; answers that nobody waits for reach nobody else."""
    keys = [b"c%d" % number for number in range(60)]
    tasks = [asyncio.create_task(bench.store.add({key: key}, LONG_S)) for key in keys]
    looks = [asyncio.create_task(bench.store.look([key])) for key in keys]
    for step in range(4):
        await asyncio.sleep(0)
        for task in (*tasks[step::8], *looks[step::8]):
            task.cancel()
    await asyncio.gather(*tasks, *looks, return_exceptions=True)

    for key, task in zip(keys, tasks, strict=True):
        assert (await bench.store.look([key])).values in ((key,), (None,))
        if not task.cancelled():
            assert task.result() == {key: key}
    standing = await asyncio.gather(*(bench.store.add({key: b"later"}, LONG_S) for key in keys))
    assert all(each[key] in (key, b"later") for key, each in zip(keys, standing, strict=True))


async def test_a_closed_store_says_so_or_forgets(bench: Bench, request: pytest.FixtureRequest) -> None:
    await bench.store.close()
    await bench.store.close()

    if request.node.callspec.params["bench"] in ("sqlite", "steady"):
        with pytest.raises(StoreError, match="not open"):
            await bench.store.look([b"k"])


_keys = st.sampled_from([b"a", b"b", b"c", b"d"])
_values = st.binary(max_size=6)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.dictionaries(_keys, _values, max_size=4)),
        st.tuples(st.just("look"), st.lists(_keys, max_size=5)),
        st.tuples(st.just("mark"), st.tuples(_keys, st.sampled_from([b"t", b"u"]))),
        st.tuples(st.just("unmark"), st.tuples(_keys, st.sampled_from([b"t", b"u"]))),
    ),
    max_size=15,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
async def test_any_run_of_calls_answers_as_a_dictionary_would(bench: Bench, steps: list) -> None:
    spot = b"%d:" % next(_rounds)
    values: dict[bytes, bytes] = {}
    turns: set[tuple[bytes, bytes]] = set()
    for name, what in steps:
        match name:
            case "add":
                items = {spot + key: value for key, value in what.items()}
                for key, value in items.items():
                    values.setdefault(key, value)
                assert await bench.store.add(items, LONG_S) == {key: values[key] for key in items}
            case "look":
                keys = [spot + key for key in what]
                found = await bench.store.look(keys, keys)
                assert found.values == tuple(values.get(key) for key in keys)
                assert found.marked == {key for key in keys if any(key == marked for marked, _ in turns)}
            case "mark":
                turns.add((spot + what[0], what[1]))
                await bench.store.add({}, None, Mark(spot + what[0], what[1], LONG_S))
            case "unmark":
                turns.discard((spot + what[0], what[1]))
                await bench.store.unmark(spot + what[0], what[1])
