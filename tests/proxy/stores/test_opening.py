from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.stores import open_store
from tests.proxy.stores.conftest import PATIENT
from tests.proxy.stores.redis_servers import RedisCluster, RedisServer


def databases(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.db")}


async def test_a_url_opens_its_backend(
    tmp_path: Path, redis_server: RedisServer, redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("memory://", "sqlite:///state.db", f"sqlite:///{tmp_path}/a.db", redis_server.url, redis_cluster.url):
        store = open_store(url, limits=PATIENT)
        await store.open()
        await store.purge()
        assert await store.add({b"k": b"v"}, 60.0) == {b"k": b"v"}
        assert not store.stats.down
        await store.close()
    assert databases(tmp_path) == {"state.db", "a.db"}


async def test_a_server_that_is_not_there_yet_does_not_stop_the_start() -> None:
    store = open_store("redis://:secret@127.0.0.1:1/0")
    await store.open()

    assert store.stats.down
    assert store.name == "redis://***@127.0.0.1:1/0"
    await store.close()


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="state: must be memory://"):
        open_store("mysql://root:secret@db")
