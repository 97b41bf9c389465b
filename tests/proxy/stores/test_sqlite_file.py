"""The file itself: private, its own, and begun afresh when it is corrupt."""

import os
import sqlite3
from pathlib import Path

import pytest
import structlog

from proxy.stores.contract import StoreError
from proxy.stores.sqlite import SQLiteStore

KEYS = [b"%d" % number for number in range(2000)]


async def opened(path: Path) -> SQLiteStore:
    store = SQLiteStore(path)
    await store.open()
    return store


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def spoil(path: Path) -> None:
    """Overwrite every page but the first with what is no page."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


async def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = await opened(tmp_path / "state.db")
        await store.add({b"k": b"v"}, None)
    finally:
        os.umask(old)

    assert [file.name for file in files(tmp_path)] == ["state.db", "state.db-shm", "state.db-wal"]
    assert {file.stat().st_mode & 0o777 for file in files(tmp_path)} == {0o600}
    await store.close()


@pytest.mark.parametrize(
    "content",
    [b"upstreams: {}\n" * 400, b"SQLite format 3\x00" + b"\xff" * 8000],
    ids=["text", "header only"],
)
async def test_a_file_that_is_no_database_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)

    with structlog.testing.capture_logs() as logs:
        store = await opened(path)

    assert await store.add({b"k": b"v"}, None) == {b"k": b"v"}
    assert (tmp_path / "state.db.corrupt").read_bytes() == content
    [line] = [line for line in logs if line["event"] == "store_corrupt"]
    assert line["log_level"] == "error"
    assert line["moved_to"] == str(tmp_path / "state.db.corrupt")
    await store.close()


async def test_corrupt_pages_are_found_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await opened(path)
    await store.add(dict.fromkeys(KEYS, bytes(100)), None)
    await store.close()
    spoil(path)

    store = await opened(path)
    assert await store.add({b"k": b"v"}, None) == {b"k": b"v"}
    assert (tmp_path / "state.db.corrupt").exists()
    await store.close()


async def test_what_becomes_corrupt_in_use_is_begun_afresh_once_for_all_workers(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first, second, third = await opened(path), await opened(path), await opened(path)
    await first.add(dict.fromkeys(KEYS, bytes(100)), None)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    spoil(path)

    with structlog.testing.capture_logs() as logs:
        assert await first.add({b"k": b"first"}, None) == {b"k": b"first"}
        assert await second.add({b"k": b"second"}, None) == {b"k": b"first"}
        assert (await third.look([b"k", *KEYS])).values[:2] == (b"first", None)

    # The others let go of the old file: that must not take the new one's log away
    assert (await first.look([b"k"])).values == (b"first",)
    fresh = await opened(path)
    assert (await fresh.look([b"k"])).values == (b"first",)
    await fresh.close()
    assert [line["event"] for line in logs] == ["store_corrupt"]
    for store in (first, second, third):
        await store.close()


async def test_a_file_removed_in_use_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await opened(path)
    await store.add({b"k": b"v"}, None)
    for file in files(tmp_path):
        file.unlink()

    assert (await store.look([b"k"])).values == (None,)
    await store.add({b"k": b"again"}, None)
    await store.close()

    store = await opened(path)
    assert (await store.look([b"k"])).values == (b"again",)
    await store.close()


async def test_a_folder_that_goes_and_comes_back_is_survived(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    store = await opened(folder / "state.db")
    await store.add({b"k": b"v"}, None)
    folder.rename(tmp_path / "away")

    for _ in range(2):
        with pytest.raises(StoreError, match="No such file or directory"):
            await store.look([b"k"])

    (tmp_path / "away").rename(folder)
    assert (await store.look([b"k"])).values == (b"v",)
    await store.close()


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (n)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"theirs\.db.*another program; name a file of its own"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_newer_versions_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await (await opened(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(StoreError, match="version 99"):
        await opened(path)
    assert not (tmp_path / "state.db.corrupt").exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [("missing/state.db", "No such file or directory"), (".", "unable to open|Is a directory")],
    ids=["no folder", "a folder"],
)
async def test_a_place_where_no_file_can_be_is_a_store_error(tmp_path: Path, place: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        await opened(tmp_path / place)
