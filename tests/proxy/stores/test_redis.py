"""What only a real server shows: its clock, its limits, its restarts; what is never shown: values and passwords."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proxy.stores.contract import Mark, StoreError
from proxy.stores.redis import RedisStore
from tests.proxy.stores.redis_servers import RedisCluster, RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of the test's own, to be killed and starved."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, name="redis", connections=4)
    await store.open()
    yield store
    await store.close()


async def test_every_key_is_under_the_prefix_and_expires(server: RedisServer, store: RedisStore) -> None:
    await store.add({b"k": b"v"}, 60.0, Mark(b"m", b"turn", 5.0))
    await store.lease(b"l", 7.0)

    with server.client() as client:
        lives = {key: client.pttl(key) for key in client.keys("*")}
    assert set(lives) == {b"trimtab:v:k", b"trimtab:m:m", b"trimtab:l:l"}
    assert 50_000 < lives[b"trimtab:v:k"] <= 60_000
    assert 3_000 < lives[b"trimtab:m:m"] <= 5_000
    assert 5_000 < lives[b"trimtab:l:l"] <= 7_000


async def test_what_never_expires_has_no_ttl(server: RedisServer, store: RedisStore) -> None:
    await store.add({b"k": b"v"}, None)

    with server.client() as client:
        assert client.pttl(b"trimtab:v:k") == -1


async def test_purge_leaves_other_programs_keys_alone(server: RedisServer, store: RedisStore) -> None:
    await store.add({b"k": b"v"}, 60.0)
    with server.client() as client:
        client.set("theirs", "1")
        assert await store.purge() == 1
        assert client.keys() == [b"theirs"]


async def test_a_restart_costs_no_call(server: RedisServer, store: RedisStore) -> None:
    """Connections of before the restart are replaced within the call that finds them broken."""
    await asyncio.gather(*(store.add({b"%d" % number: b"v"}, 60.0) for number in range(20)))
    server.kill()
    server.start()

    assert await store.add({b"k": b"v"}, 60.0, Mark(b"m", b"t", 60.0)) == {b"k": b"v"}
    await store.unmark(b"m", b"t")
    assert all(await asyncio.gather(*(store.lease(b"%d" % number, 60.0) for number in range(20))))


async def test_a_server_that_is_away_is_a_store_error(server: RedisServer, store: RedisStore) -> None:
    server.kill()

    for call in (
        store.look([b"k"], [b"m"]),
        store.add({b"k": b"v"}, 60.0),
        store.unmark(b"m", b"t"),
        store.lease(b"l", 60.0),
        store.release(b"l", b"token"),
        store.purge(),
    ):
        with pytest.raises(StoreError, match=r"^redis: Error .* connecting to 127\.0\.0\.1:"):
            await call


async def test_calls_given_up_while_the_server_hangs_mix_up_no_answers(server: RedisServer, store: RedisStore) -> None:
    """Nor do they use up connections: there are 4 of them, and 40 calls."""
    keys = [b"%d" % number for number in range(40)]
    await store.add({key: b"value of " + key for key in keys}, 60.0)

    server.pause()
    for start in range(0, 40, 8):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await asyncio.gather(*(store.look([key]) for key in keys[start : start + 8]))
    server.resume()

    found = await asyncio.gather(*(store.look([key]) for key in keys))
    assert [each.values for each in found] == [(b"value of " + key,) for key in keys]


async def test_a_server_out_of_memory_is_a_store_error_that_quotes_nothing(
    server: RedisServer, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    with server.client() as client:
        client.config_set("maxmemory", "1")

    with caplog.at_level("DEBUG"), pytest.raises(StoreError) as caught:
        await store.add({b"key-text": b"secret text"}, 60.0, Mark(b"m", b"turn-text", 60.0))

    assert str(caught.value) == "redis: OutOfMemoryError"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "text" not in caplog.text


async def test_after_a_failover_the_old_primary_is_let_go_of(server: RedisServer, store: RedisStore) -> None:
    await asyncio.gather(*(store.look([b"k"]) for _ in range(4)))
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
        before = client.info("stats")["total_connections_received"]
        with pytest.raises(StoreError, match=r"^redis: ReadOnlyError$"):
            await store.add({b"k": b"v"}, 60.0)
        client.replicaof("NO", "ONE")

        await asyncio.gather(*(store.add({b"%d" % number: b"v"}, 60.0) for number in range(4)))
        assert client.info("stats")["total_connections_received"] == before + 4


async def test_a_wrong_type_under_a_key_is_a_store_error_that_quotes_nothing(
    server: RedisServer, store: RedisStore
) -> None:
    with server.client() as client:
        client.lpush(b"trimtab:v:k", "x")

    with pytest.raises(StoreError, match=r"^redis: WRONGTYPE$"):
        await store.add({b"k": b"secret text"}, 60.0)


@pytest.mark.parametrize("password", ["wrong-secret", ""], ids=["wrong", "none"])
async def test_a_refused_password_is_a_store_error_without_it(
    tmp_path: Path, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(tmp_path)
    server.start("right-secret")
    secret = f":{password}@" if password else ""
    store = RedisStore(f"redis://{secret}127.0.0.1:{server.port}/0", name="redis")
    try:
        with caplog.at_level("DEBUG"), pytest.raises(StoreError) as caught:
            await store.open()
    finally:
        server.kill()
        await store.close()

    assert ("invalid username-password" if password else "Authentication required") in str(caught.value)
    assert "secret" not in f"{caught.value} {caplog.text}"


async def test_a_password_in_the_url_opens_the_door(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start("p@ss/w#rd")
    store = RedisStore(f"redis://:p%40ss%2Fw%23rd@127.0.0.1:{server.port}/0", name="redis")
    try:
        await store.open()
        assert await store.add({b"k": b"v"}, 60.0) == {b"k": b"v"}
    finally:
        await store.close()
        server.kill()


async def test_a_clusters_keys_lie_on_all_of_its_nodes(redis_cluster: RedisCluster) -> None:
    store = RedisStore(redis_cluster.nodes[1].url.removesuffix("/0"), name="cluster", cluster=True)
    await store.open()
    await store.purge()
    keys = [b"%d" % number for number in range(60)]

    await store.add(dict.fromkeys(keys, b"v"), 60.0)

    held = []
    for node in redis_cluster.nodes:
        with node.client() as client:
            held.append(client.dbsize())
    assert sum(held) == 60
    assert min(held) > 5
    assert (await store.look(keys)).values == (b"v",) * 60
    assert await store.purge() == 60
    await store.close()
