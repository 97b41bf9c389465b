"""The store in Redis or Valkey, alone or as a Cluster: shared by the workers of several machines.

Keys, with the caller's bytes after the prefix:

    trimtab:v:…   a value                      SET NX PX, never overwritten
    trimtab:m:…   the turns under a mark key   a sorted set, scored by expiry; the key lives as long as its last turn
    trimtab:l:…   a lease's token              SET NX PX

In a Cluster no command names two keys, for they may be on different nodes; no two keys must change together.
Every expiry is reckoned by the server (PX, and TIME inside scripts), so the workers' clocks need not agree.
What is in use since Redis 4 suffices; scripts are sent whole, since a server that restarts forgets those it knew.
"""

from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, RedisClusterException, RedisError, ResponseError

from proxy.stores.contract import Found, Mark, StoreError
from proxy.stores.terms import milliseconds

PREFIX = b"trimtab:"
VALUE, MARK, LEASE = PREFIX + b"v:", PREFIX + b"m:", PREFIX + b"l:"

_CONNECT_S = 5.0  # to connect, and for an answer; the caller's own limit is shorter
_ADD_TRIES = 3
_UNREACHABLE = "Redis Cluster cannot be connected"

_MARK = b"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
return 1
"""

_UNMARK = b"""
redis.call('ZREM', KEYS[1], ARGV[1])
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if last then redis.call('PEXPIREAT', KEYS[1], last) end
return 1
"""

_RELEASE = b"""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""

_Command = tuple[str | bytes | int, ...]


class RedisStore:
    """Keeps everything in the server (or, with `cluster`, the Cluster) at `url`; messages call it `name`.

    At most `connections` at once to each node; further calls wait for one.
    """

    def __init__(self, url: str, *, name: str, cluster: bool = False, connections: int = 32) -> None:
        self._name = name
        self._cluster = cluster
        # One retry at once: after a restart of the server every pooled connection fails on its first use. What is
        # sent may be sent twice without harm. Without library names and RESP3 a new connection costs no handshake.
        options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            "socket_timeout": _CONNECT_S,
            "socket_connect_timeout": _CONNECT_S,
            "protocol": 2,
            "driver_info": None,
        }
        self._client: Redis | RedisCluster
        if cluster:
            self._client = RedisCluster.from_url(url, max_connections=connections, **options)
        else:
            pool = BlockingConnectionPool.from_url(url, max_connections=connections, timeout=None, **options)
            self._client = Redis.from_pool(pool)

    async def open(self) -> None:
        """Connect, and see whether the server answers."""
        await self._run([("GET", VALUE)])

    async def look(self, keys: Sequence[bytes], marks: Sequence[bytes] = ()) -> Found:
        """Values of keys, and which of `marks` have a live turn.

        One round trip; without a Cluster one more when some mark lives, which is rare, and for that one command
        in place of hundreds when none does.
        """
        values, living = [VALUE + key for key in keys], [MARK + key for key in marks]
        if self._cluster:
            replies = await self._run([*(("GET", key) for key in values), *(("EXISTS", key) for key in living)])
            return _found(replies[: len(keys)], marks, replies[len(keys) :])
        commands: list[_Command] = []
        if values:
            commands.append(("MGET", *values))
        if living:
            commands.append(("EXISTS", *living))
        replies = await self._run(commands)
        held = replies[0] if values else ()
        if not living or not replies[-1]:
            return _found(held, (), ())
        return _found(held, marks, await self._run([("EXISTS", key) for key in living]))

    async def add(
        self, items: Mapping[bytes, bytes], ttl_s: float | None, mark: Mark | None = None
    ) -> Mapping[bytes, bytes]:
        """Write what is not there yet; the first writer wins.

        GET follows SET instead of being its option: servers before 7 refuse NX and GET in one command.
        """
        term: _Command = () if ttl_s is None else ("PX", milliseconds(ttl_s))
        marking: list[_Command] = []
        if mark is not None:
            marking = [("EVAL", _MARK, 1, MARK + mark.key, mark.turn, milliseconds(mark.ttl_s))]
        standing: dict[bytes, bytes] = {}
        open_ = list(items)
        for _ in range(_ADD_TRIES):
            commands = list(marking)
            for key in open_:
                commands += (("SET", VALUE + key, items[key], "NX", *term), ("GET", VALUE + key))
            replies = await self._run(commands)
            pairs = replies[len(marking) :]
            for key, was_set, stands in zip(open_, pairs[::2], pairs[1::2], strict=True):
                if was_set or stands is not None:
                    standing[key] = items[key] if was_set else stands
            open_ = [key for key in open_ if key not in standing]
            if not open_:
                return {key: standing[key] for key in items}
            marking = []
        raise StoreError(f"{self._name}: values vanish between two commands; is the server out of memory?")

    async def unmark(self, key: bytes, turn: bytes) -> None:
        """End a turn's mark."""
        await self._run([("EVAL", _UNMARK, 1, MARK + key, turn)])

    async def lease(self, key: bytes, ttl_s: float) -> bytes | None:
        """A token while nobody else holds the lease, else None."""
        token = token_bytes(16)
        name = LEASE + key
        # Asked back rather than taken from SET's answer, which is None when the command was sent twice
        holder = (await self._run([("SET", name, token, "NX", "PX", milliseconds(ttl_s)), ("GET", name)]))[1]
        return token if holder == token else None

    async def release(self, key: bytes, token: bytes) -> None:
        """Give a lease back, if `token` still holds it."""
        await self._run([("EVAL", _RELEASE, 1, LEASE + key, token)])

    async def purge(self) -> int:
        """Forget every key under the prefix, on every node; gives the number of values forgotten."""
        forgotten = 0
        found: list[bytes] = []
        with _Failures(self._name):
            async for key in self._client.scan_iter(match=PREFIX + b"*", count=1000):
                found.append(key)
                if len(found) == 1000:
                    forgotten += await self._unlink(found)
                    found = []
        return forgotten + await self._unlink(found)

    async def close(self) -> None:
        """Let go of the connections."""
        with _Failures(self._name):
            await self._client.aclose()

    async def _unlink(self, keys: Sequence[bytes]) -> int:
        replies = await self._run([("UNLINK", key) for key in keys])
        return sum(int(gone) for key, gone in zip(keys, replies, strict=True) if key.startswith(VALUE))

    async def _run(self, commands: Sequence[_Command]) -> list[Any]:
        """The answers to commands that are sent together; StoreError where one of them is an error."""
        if not commands:
            return []
        with _Failures(self._name):
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                # Errors are returned: raised, their message would quote the command, and with it the value
                replies: list[Any] = await pipeline.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, ReadOnlyError) and isinstance(self._client, Redis):
                    # After a failover the old primary answers so until its name is looked up anew
                    await self._client.connection_pool.disconnect(inuse_connections=False)
                if isinstance(reply, Exception):
                    raise reply
        return replies


def _found(values: Sequence[bytes | None], marks: Sequence[bytes], lives: Sequence[int]) -> Found:
    return Found(tuple(values), frozenset(key for key, alive in zip(marks, lives, strict=True) if alive))


class _Failures:
    """Turns what the client raises into a StoreError; says nothing that might quote a value or a password."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        if isinstance(error, RedisError | RedisClusterException | OSError | TimeoutError):
            raise StoreError(f"{self._name}: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    """What went wrong with the connection; of other errors the kind alone, since they might quote a command."""
    text = " ".join(str(error).split())
    if isinstance(error, RedisConnectionError | OSError) or text.startswith(_UNREACHABLE):
        return text[:300] or type(error).__name__
    code = text.partition(" ")[0]  # as in «WRONGTYPE Operation against a key …»
    return code if type(error) is ResponseError and code.isupper() and code.isalpha() else type(error).__name__
