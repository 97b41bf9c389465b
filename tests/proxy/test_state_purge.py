"""`trimtab state purge` forgets every decision, in whatever store, and says how many entries that were."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from proxy import cli
from proxy.app import STATE_KEY
from proxy.stores.opening import open_store
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import body, dialogue
from tests.proxy.proxied import Records, Start, post
from tests.proxy.stores.redis_servers import RedisCluster, RedisServer, free_port

SECRET = "redis://:pass%20word@127.0.0.1"


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server.url
    server.kill()


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster.url
    finally:
        cluster.kill()


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


def purged(tmp_path: Path, url: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    path = tmp_path / "trimtab.yaml"
    path.write_text(f"state: '{url}'")
    done = CliRunner().invoke(cli.app, ["state", "purge", "--config", str(path)])
    return done.exit_code, done.stdout, done.stderr


async def filled(url: str, entries: int) -> None:
    store = open_store(url)
    await store.open()
    await store.add({STATE_KEY: b"the key"}, None)
    await store.add({b"digest %d" % n: b"ledger" for n in range(entries)}, 3600)
    await store.close()


async def found(url: str, *keys: bytes) -> list[bytes | None]:
    store = open_store(url)
    await store.open()
    try:
        return list((await store.look(keys)).values)
    finally:
        await store.close()


def test_everything_is_forgotten_but_the_key_that_workers_share(tmp_path: Path, url: str) -> None:
    asyncio.run(filled(url, 3))

    code, out, _ = purged(tmp_path, url)

    assert (code, out.split(": ", 1)[1]) == (0, "forgot 3 entries\n")
    assert asyncio.run(found(url, b"digest 0", b"digest 2", STATE_KEY)) == [None, None, b"the key"]
    assert purged(tmp_path, url)[1].endswith("forgot 0 entries\n")


async def test_a_conversation_is_decided_about_anew(
    start: Start, upstream: FakeUpstream, records: Records, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    settings = f"state: '{url}'\ndefaults: {{window: 1000, reserve_output: 0, policy: fifo, recall: {{budget: 0}}}}"
    content = body(dialogue(20))

    async def asked(client: httpx2.AsyncClient) -> str:
        response = await post(client, content)
        return str((await records.get(len(upstream.exchanges)))[-1]["ledger"]) + response.headers["x-trimtab-action"]

    first = await asked(await start(settings))
    again = await asked(await start(settings))
    code, out, _ = await asyncio.to_thread(purged, tmp_path, url)
    anew = await asked(await start(settings))

    assert code == 0
    assert int(re.findall(r"forgot (\d+)", out)[0]) >= 1
    assert again != first
    assert anew == first


def test_what_was_there_is_not_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def secret() -> None:
        store = open_store(f"sqlite:///{path}")
        await store.open()
        await store.add({b"digest": b"a planted secret" * 50}, 3600)
        await store.close()

    asyncio.run(secret())
    assert b"planted" in path.read_bytes()

    purged(tmp_path, f"sqlite:///{path}")

    assert not any(b"planted" in each.read_bytes() for each in tmp_path.glob("state.db*"))
    assert sqlite3.connect(path).execute("SELECT count(*) FROM entry").fetchone() == (0,)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://", "memory://: nothing to purge, each process keeps its own memory and forgets it when it ends\n"),
        ("sqlite:///{}/none.db", "nothing to purge, there is no such file\n"),
    ],
    ids=["memory", "no file"],
)
def test_where_there_is_nothing_it_says_why(tmp_path: Path, url: str, said: str) -> None:
    code, out, _ = purged(tmp_path, url.format(tmp_path))

    assert (code, out.endswith(said)) == (0, True)
    assert not (tmp_path / "none.db").exists()


def test_a_store_that_does_not_answer_is_told_without_its_password(tmp_path: Path) -> None:
    code, out, err = purged(tmp_path, f"{SECRET}:{free_port()}/0")

    assert (code, out) == (4, "")
    assert err.startswith("trimtab: nothing was forgotten, or not all: redis://***@127.0.0.1:")
    assert "pass" not in err
    assert len(err.splitlines()) == 1


def test_without_a_configuration_the_defaults_are_meant() -> None:
    assert "memory://" in CliRunner().invoke(cli.app, ["state", "purge"]).stdout
