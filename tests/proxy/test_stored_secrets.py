"""What the stores hold, on disk and in dumps, has no word of what anybody said."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import system, user, words
from tests.proxy.proxied import Start
from tests.proxy.stores.redis_servers import RedisServer
from tests.proxy.talks import Talk, answering

SECRET = "kingfisher-7731"
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(folder, "--rdbcompression", "no")
    server.start()
    yield server
    server.kill()


async def converse(client_settings: str, start: Start, upstream: FakeUpstream) -> None:
    """Dialogue and tool loop, each cut more than once, with the secret in every message, key, session and call."""
    answering(upstream)
    client = await start(client_settings)
    headers = {"authorization": f"Bearer {SECRET}", "x-trimtab-session": SECRET}
    opening = [system(f"You know {SECRET}."), user(f"The password is {SECRET}.")]
    talk = Talk(client, upstream, list(opening), headers=headers)
    agent = Talk(client, upstream, list(opening), {"tools": TOOLS}, headers)
    cuts = (await talk.send()).evicted + (await agent.send()).evicted
    for number in range(16):
        cuts += (await talk.send(user(f"{SECRET} {number}: {words(60, number)}"))).evicted
        (call,) = agent.messages[-1]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": f"{SECRET}: {words(100, number)}"}
        cuts += (await agent.send(result)).evicted
    giant = {"role": "tool", "tool_call_id": agent.messages[-1]["tool_calls"][0]["id"], "content": f"{SECRET} " * 2000}
    await agent.send(giant)
    assert cuts > 4


def rules(state: str, policy: str) -> str:
    return f"state: '{state}'\ndefaults: {{window: 1000, reserve_output: 0, policy: {policy}, breathing_turns: 0}}"


POLICIES = ["fifo", "clear_tool_results", "priority"]


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_files_of_sqlite_hold_no_text(
    start: Start, upstream: FakeUpstream, tmp_path: Path, policy: str
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    await converse(rules(f"sqlite:///{folder}/state.db", policy), start, upstream)

    held = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(held) >= {"state.db", "state.db-wal"}
    assert sum(map(len, held.values())) > 10_000
    assert not [name for name, data in held.items() if unsafe(data)]


@pytest.mark.parametrize("policy", POLICIES)
async def test_keys_values_and_dumps_of_redis_hold_no_text(
    start: Start, upstream: FakeUpstream, tmp_path: Path, redis: RedisServer, policy: str
) -> None:
    await converse(rules(redis.url, policy), start, upstream)

    with redis.client() as client:
        client.save()
        keys = list(client.scan_iter())
        dumped = [client.dump(key) or b"" for key in keys]
        plain = [client.get(key) or b"" for key in keys if client.type(key) == b"string"]
    file = (tmp_path / "redis" / "dump.rdb").read_bytes()
    assert len(keys) > 20
    assert len(file) > 1000
    assert not [data for data in (*keys, *dumped, *plain, file) if unsafe(data)]


def unsafe(data: bytes) -> bool:
    """Whether a word of a message is in it, however it is encoded."""
    words_ = (SECRET, "kingfisher", "tide berth", "password", "look_up", "Result removed")
    return any(word.encode(encoding) in data for word in words_ for encoding in ("utf-8", "utf-16-le", "utf-32-le"))


def test_the_search_finds_what_it_looks_for() -> None:
    assert unsafe(b"\x00" + SECRET.encode() + b"\x00")
    assert unsafe(SECRET.encode("utf-16-le"))
    assert not unsafe(b"anything else")
