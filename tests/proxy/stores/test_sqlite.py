"""The store in a file: several processes, restarts, bounds, and a thread of its own."""

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

from proxy.stores.contract import Mark, StoreError
from proxy.stores.sqlite import SQLiteStore
from proxy.stores.sqlite_rows import Bounds
from tests.proxy.stores.conftest import Clock
from tests.proxy.stores.workers import fill_the_disk, race, run_together


def rows(path: Path, table: str = "entry") -> int:
    with sqlite3.connect(path) as connection:
        [[number]] = connection.execute(f"SELECT count(*) FROM {table}")
    connection.close()
    return number


def size(path: Path) -> int:
    return path.stat().st_size


async def test_of_racing_processes_one_wins_each_key_and_all_see_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    keys = [b"key %d" % number for number in range(200)]

    standing = await asyncio.to_thread(run_together, race, 3, f"sqlite:///{path}", keys)

    store = SQLiteStore(path)
    await store.open()
    winners = (await store.look(keys)).values
    await store.close()
    assert all(tuple(each[key] for key in keys) == winners for each in standing)
    assert len(set(winners)) > 1, "the processes did not race: one of them did everything"


async def test_values_survive_a_restart(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db")
    await store.open()
    await store.add({b"k": b"v"}, 60.0)
    await store.close()

    await store.open()
    assert (await store.look([b"k"])).values == (b"v",)
    await store.close()


async def test_a_full_disk_is_a_store_error_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    [(message, kept, after)] = await asyncio.to_thread(run_together, fill_the_disk, 1, str(path))

    assert "state.db" in message
    assert (kept, after) == (b"kept", b"room")
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_expired_rows_are_swept_in_batches(tmp_path: Path) -> None:
    clock = Clock()
    store = SQLiteStore(tmp_path / "state.db", sweep_every_s=0.0, clock=clock)
    await store.open()
    await store.add({b"%d" % number: b"v" for number in range(1200)}, 1.0, Mark(b"m", b"t", 1.0))
    await store.add({b"ever": b"v"}, None)
    assert await store.lease(b"l", 1.0)
    await store.look([])  # behind the last sweep in the thread's queue
    clock.now += 2

    left = []
    for _ in range(4):
        await store.unmark(b"nothing", b"there")
        await store.look([])
        left.append(rows(tmp_path / "state.db"))

    assert left == [701, 201, 1, 1]
    assert rows(tmp_path / "state.db", "mark") == rows(tmp_path / "state.db", "lease") == 0
    await store.close()


@pytest.mark.parametrize("bounds", [Bounds(rows=50), Bounds(bytes=300_000)], ids=["rows", "bytes"])
async def test_the_oldest_rows_go_when_there_are_too_many(tmp_path: Path, bounds: Bounds) -> None:
    path = tmp_path / "state.db"
    store = SQLiteStore(path, bounds=bounds, sweep_every_s=0.0)
    await store.open()
    await store.add({b"lasting": b"v"}, None)
    keys = [b"%d" % number for number in range(300)]
    for key in keys:
        await store.add({key: bytes(3000)}, 60.0)
    await store.look([])

    held = (await store.look(keys)).values
    alive = [value is not None for value in held]
    assert alive == sorted(alive), "some that are newer went before some that are older"
    assert sum(alive) <= bounds.rows + 1
    assert sum(alive) * 3000 <= bounds.bytes
    assert sum(alive) >= 40
    assert (await store.look([b"lasting"])).values == (b"v",)
    await store.close()


async def test_what_never_expires_is_bounded_as_well(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db", bounds=Bounds(rows=10), sweep_every_s=0.0)
    await store.open()
    keys = [b"%d" % number for number in range(30)]
    for key in keys:
        await store.add({key: b"v"}, None)
    await store.look([])

    assert (await store.look(keys)).values == (None,) * 20 + (b"v",) * 10
    await store.close()


async def test_while_another_process_writes_reads_go_on_and_writes_give_up(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db", busy_s=0.1)
    await store.open()
    await store.add({b"k": b"v"}, None)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    assert (await store.look([b"k"])).values == (b"v",)
    start = time.monotonic()
    with pytest.raises(StoreError, match="locked"):
        await store.add({b"new": b"v"}, None)
    assert time.monotonic() - start < 2

    other.execute("ROLLBACK")
    other.close()
    assert await store.add({b"new": b"v"}, None) == {b"new": b"v"}
    await store.close()


async def test_the_event_loop_runs_on_while_the_file_is_busy(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state.db", busy_s=0.3)
    await store.open()
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    adding = asyncio.create_task(store.add({b"k": b"v"}, None))

    turns = 0
    while not adding.done():
        await asyncio.sleep(0.005)
        turns += 1

    assert isinstance(adding.exception(), StoreError)
    assert turns > 5
    other.execute("ROLLBACK")
    other.close()
    await store.close()


async def test_calls_whose_caller_has_gone_are_left_out(tmp_path: Path) -> None:
    """So a store that was blocked does not work off what nobody waits for any more."""
    store = SQLiteStore(tmp_path / "state.db", busy_s=0.2)
    await store.open()
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(store.add({b"first": b"v"}, None))
    await asyncio.sleep(0.05)
    late = asyncio.create_task(store.add({b"late": b"v"}, None))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.gather(first, late, return_exceptions=True)
    other.execute("ROLLBACK")
    other.close()

    assert (await store.look([b"first", b"late"])).values == (None, None)
    await store.close()


async def test_calls_that_wait_share_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SQLiteStore(path)
    await store.open()

    async def grown(*adding: dict[bytes, bytes]) -> int:
        before = size(Path(f"{path}-wal"))
        await asyncio.gather(*(store.add(items, None) for items in adding))
        return size(Path(f"{path}-wal")) - before

    await store.add({b"first": b"v"}, None)
    alone = await grown({b"alone": b"v"})
    together = await grown(*({b"%d" % number: b"v"} for number in range(40)))
    assert together < 20 * alone
    await store.close()


async def test_purge_makes_the_file_small(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SQLiteStore(path)
    await store.open()
    await store.add({b"secret": b"forget me" * 100_000}, None)
    await store.purge()
    await store.close()

    assert path.stat().st_size < 100_000
    assert b"forget me" not in path.read_bytes()
