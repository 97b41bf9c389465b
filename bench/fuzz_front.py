"""The chat path in one process, without sockets: cases go in as ASGI, and what would go upstream is judged."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message

from bench.fuzz_bodies import Case
from bench.served import held_up_s
from policies import registry
from policies.errors import PolicyError
from proxy import app, exchange
from proxy import config as configs
from proxy.audit import Audit, Sinks
from proxy.gateway import Gateway
from proxy.http.headers import Headers
from proxy.metrics import Metrics
from proxy.upstream import Reply, Upstream
from tests.validator import violations, worsened

SLOWEST_S = 1.0
ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}]}'


class _Body:
    """A body that is there from the beginning, and no connection's."""

    def __init__(self) -> None:
        self._left = [ANSWER]

    @property
    def ended(self) -> bool:
        return not self._left

    async def read(self) -> bytes:
        return self._left.pop() if self._left else b""

    async def aclose(self) -> None:
        pass


class Echo(Upstream):
    """An upstream that answers at once, and keeps what it was sent last."""

    def __init__(self) -> None:
        super().__init__("fake", "http://127.0.0.1:9/v1")
        self.body: bytes | None = None

    async def send(self, method: str, target: bytes, headers: Headers, body: Any = b"", **_: Any) -> Reply:  # noqa: D102
        slots = asyncio.Semaphore()
        if method == "POST":
            self.body = body
            return Reply("fake", 200, [(b"content-type", b"application/json")], _Body(), slots)
        return Reply("fake", 404, [], _Body(), slots)


class Kept(Audit):
    """Audit records of the case at hand."""

    def __init__(self) -> None:
        super().__init__(Sinks(paths=()))
        self.records: list[Mapping[str, object]] = []

    def put(self, record: Mapping[str, object], *, error: bool = False) -> None:
        """Keep a record."""
        self.records.append(record)


def settings() -> str:
    """A route for each policy that needs no options, and for each way of overflowing."""
    ways = ("truncate", "reject", "force", "passthrough")
    rules = []
    for number, name in enumerate(registry.names()):
        try:
            registry.create(name, {})
        except PolicyError:
            continue
        rules.append(
            f"{{name: r{number}, match: {{path: /r{number}}}, policy: {name}, window: {(100, 300, 1000)[number % 3]}, "
            f"on_overflow: {ways[number % 4]}, max_messages: {('null', 8, 20)[number % 3]}, "
            f"max_bytes: {('null', 'null', 2000, 8000)[number % 4]}, "
            f"alternate_roles: {('null', 'strict', 'free')[number % 3]}, keep_prefix: {number % 2 * 0.1}}}"
        )
    defaults = "{reserve_output: 50, allow_overrides: true, hold: {wait_s: 0}}"
    return (
        "upstreams: {fake: {base_url: 'http://127.0.0.1:9/v1'}}\nembeddings: {backend: none}\n"
        f"audit: {{path: /dev/null, store: null}}\ndefaults: {defaults}\n"
        f"routes: [{', '.join(rules)}, {{name: last, window: 300}}]"
    )


@dataclass(slots=True)
class Front:
    """The gateway, and what it was last seen to do."""

    gateway: Gateway
    upstream: Echo
    audit: Kept
    routes: tuple[str, ...]
    sessions: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    async def problem(self, case: Case) -> str | None:
        """What is wrong with how a case was answered, None where nothing is."""
        self.sessions += 1
        shrunk: set[int] = set()
        for body in (case.body, *case.more):
            if (found := await self._one(case, body, shrunk)) is not None:
                return found
        return None

    async def _one(self, case: Case, body: bytes, shrunk: set[int]) -> str | None:
        self.upstream.body = None
        self.audit.records.clear()
        start = time.perf_counter() - held_up_s()
        try:
            async with asyncio.timeout(20):
                answer = await self._ask(case, body)
        except TimeoutError:
            return "no answer"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return f"raised {type(error).__name__}"
        if (took := time.perf_counter() - held_up_s() - start) > SLOWEST_S:
            return f"took more than {SLOWEST_S:g} s ({took:.1f})"
        status, fields = answer
        action = fields.get(b"x-trimtab-action", b"refused").decode()
        self.counts[action] = self.counts.get(action, 0) + 1
        if status >= 500:
            return f"status {status}"
        if b"x-trimtab-faults" in fields:
            return f"faults {fields[b'x-trimtab-faults'].decode()}"
        sent = self.upstream.body
        if status >= 400:
            return None if sent is None else "refused, and sent all the same"
        if sent is None:
            return "answered, and sent to nobody"
        if sent == body:
            return None
        return self._worse(body, sent, case, shrunk)

    def _worse(self, body: bytes, sent: bytes, case: Case, shrunk: set[int]) -> str | None:
        """What is worse in what was sent than in what came."""
        rows: Any = [row for record in self.audit.records for row in record.get("slots", ())]  # type: ignore[attr-defined]
        shrunk.update(index for row in rows if row["action"] == "shrink" for index in row["messages"])
        if not any(record.get("action") in ("trimmed", "unfit", "held") for record in self.audit.records):
            return "other bytes, and nothing was trimmed"
        try:
            raw = gzip.decompress(body) if ("content-encoding", "gzip") in case.headers else body
            before, after = (json.loads(each.decode("utf-8", "replace")) for each in (raw, sent))
        except (ValueError, OSError, EOFError):
            return "what was sent, or what was trimmed, is no JSON"
        rest = [{name: value for name, value in each.items() if name != "messages"} for each in (before, after)]
        if rest[0] != rest[1]:
            return "another field than messages changed"
        # Of those that were shortened in the end only those count that are not there as they were.
        came, went = before["messages"], after["messages"]
        touched = frozenset(i for i in shrunk if i < len(came) and went.count(came[i]) < came.count(came[i]))
        found = worsened(came, went, touched)
        if len({json.dumps(message) for message in came}) < len(came):
            # Which of two equal messages is still there cannot be told, and so not whose faults it has.
            known = {line.split(": ", 1)[-1] for line in violations(came)}
            found = [line for line in found if line.split(": ", 1)[-1] not in known]
        return f"worse: {found[0].split(': ', 1)[-1]}" if found else None

    async def _ask(self, case: Case, body: bytes) -> tuple[int, dict[bytes, bytes]]:
        started: list[Message] = []
        incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        over = asyncio.Event()

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)

        path = f"/{self.routes[case.route % len(self.routes)]}/v1/chat/completions"
        own = [(name.encode(), value.encode()) for name, value in case.headers]
        headers = [(b"content-type", b"application/json"), (b"x-trimtab-session", b"%d" % self.sessions), *own]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        await self.gateway({**scope, "headers": headers}, receive, send)
        over.set()
        return started[0]["status"], dict(started[0]["headers"])


@asynccontextmanager
async def front() -> AsyncIterator[Front]:
    """The application's parts with an upstream and an audit of this process."""
    config = configs.loads(settings())
    metrics = Metrics(routes=[route.name for route in config.routes], policies=registry.names())
    async with app.opened(config, {}, metrics, 60.0) as parts:
        upstream, audit = Echo(), Kept()
        own = parts.gateway
        exchanging = exchange.Parts(
            pipeline=own._parts.pipeline,
            learned=own._parts.learned,
            audit=audit,
            metrics=metrics,
            recording=exchange.Recording(),
        )
        gateway = Gateway(configs.router(config), {"fake": upstream}, own._windows, exchanging, max_body_bytes=1 << 26)
        yield Front(gateway, upstream, audit, tuple(route.name for route in config.routes[:-1]))
