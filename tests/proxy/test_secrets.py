"""A secret in a request's content, key, headers and answers is in nothing that the proxy writes, whatever happens."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from tests.fakes.collector import Collector
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import Message, body, user, words
from tests.proxy.replicas import Replica

SECRET = "cormorant-5521-lantern"
KEY = f"proxy-key-{SECRET}"
RULES = """
state: sqlite:///{folder}/state.db
telemetry: {{endpoint: "{collector}"}}
log: {{level: debug}}
keys: [{{name: team, file: {folder}/keys, admin: true}}]
defaults: {{window: 600, reserve_output: 0, policy: fifo, protect_last: 1, hold: {{wait_s: 0}}, keep_prefix: 0}}
server: {{max_body_bytes: 200000, read_timeout_s: 0.5, max_header_bytes: 20000}}
routes:
  - {{name: strict, match: {{path: /strict}}, on_overflow: reject}}
  - {{name: shadow, match: {{path: /shadow}}, mode: shadow, policy: semantic_cluster}}
  - {{name: rest}}
"""


@pytest.fixture
def collector() -> Collector:
    return Collector()


@pytest.fixture
async def replica(
    tmp_path: Path, upstream: FakeUpstream, serve: Callable[..., Awaitable[str]], collector: Collector
) -> AsyncIterator[Replica]:
    (tmp_path / "keys").write_text(KEY)
    rules = RULES.format(folder=tmp_path, collector=await serve(collector.app()))
    made = Replica(tmp_path / "replica", rules, upstream=upstream.url, command=("--workers", "1"))
    await made.start()
    yield made
    made.stop()


def talk(turns: int) -> list[Message]:
    messages = [{"role": "system", "content": f"You know {SECRET}."}]
    for turn in range(turns):
        messages += [user(f"{turn} {SECRET} {words(60, turn)}"), {"role": "assistant", "content": f"{SECRET} {turn}"}]
    return [*messages, user(f"What of {SECRET}?")]


async def answering(exchange: Exchange) -> None:
    """By its path: an answer, a stream, an overflow, errors that quote what they got, or none."""
    what = exchange.header("x-want") or b""
    quoted = json.dumps(
        {"error": {"message": f"no {SECRET}", "type": SECRET, "code": "bad " + SECRET, "param": SECRET}}
    )
    fields = (("X-Secret", SECRET), ("Set-Cookie", SECRET), ("Content-Type", "application/json"))
    if what == b"overflow":
        text = f"This model's maximum context length is 300 tokens. However, your {SECRET} resulted in 590 tokens."
        error = {
            "message": text,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
        await exchange.answer(json.dumps({"error": error}).encode(), 400, *fields)
    elif what == b"error":
        await exchange.answer(quoted.encode(), 500, *fields)
    elif what == b"redirect":
        await exchange.answer(b"", 302, ("Location", f"http://{SECRET}.example/{SECRET}"))
    elif what == b"reset":
        exchange.reset()
    elif what == b"garbage":
        await exchange.send(f"{SECRET} {SECRET}\r\n\r\n".encode())
        exchange.close()
    elif what == b"broken":
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(f"data: {{'{SECRET}\n\nevent: error\ndata: {quoted}\n\n".encode())
        exchange.close()
    elif what == b"stream":
        await exchange.sse(json.dumps({"choices": [{"index": 0, "delta": {"content": SECRET}}]}))
    else:
        message = {"role": "assistant", "content": SECRET}
        await exchange.answer(json.dumps({"choices": [{"index": 0, "message": message}]}).encode(), 200, *fields)


def chat(
    path: str = "", want: str = "", turns: int = 20, content: bytes | None = None, **headers: str
) -> httpx2.Request:
    fields = {
        "authorization": f"Bearer sk-{SECRET}",
        "x-trimtab-key": KEY,
        "x-trimtab-session": SECRET,
        "cookie": SECRET,
    }
    return httpx2.Request(
        "POST",
        f"http://proxy{path}/v1/chat/completions",
        content=body(talk(turns), user=SECRET, stream=want in ("stream", "broken")) if content is None else content,
        headers={**fields, "x-want": want, "content-type": "application/json", **headers},
    )


def other(method: str, path: str, want: str = "", **headers: str) -> httpx2.Request:
    fields = {"x-trimtab-key": KEY, "authorization": f"Bearer sk-{SECRET}", "x-want": want, **headers}
    return httpx2.Request(method, f"http://proxy{path}", content=SECRET if method == "POST" else None, headers=fields)


BASIC = base64.b64encode(f"{SECRET}:wrong".encode()).decode()
REQUESTS = {
    "passes": (chat(turns=1), 200),
    "trimmed": (chat(), 200),
    "trimmed, a stream": (chat(want="stream"), 200),
    "shadow": (chat("/shadow"), 200),
    "refused": (chat("/strict", content=body([user(f"{SECRET} {words(2000)}")])), 400),
    "an upstream's overflow, and the retry": (chat(want="overflow"), 400),
    "an upstream's error": (chat(want="error"), 500),
    "a redirect": (chat(want="redirect"), 302),
    "a reset": (chat(want="reset"), 502),
    "no HTTP": (chat(want="garbage"), 502),
    "a stream that breaks": (chat(want="broken"), 0),
    "no JSON": (chat(content=f'{{"{SECRET}'.encode()), 200),
    "ambiguous JSON": (chat(content=f'{{"messages":[],"messages":["{SECRET}"]}}'.encode()), 200),
    "an odd encoding": (chat(**{"content-encoding": SECRET}), 200),
    "corrupt gzip": (chat(**{"content-encoding": "gzip"}), 200),
    "too large": (chat(content=SECRET.encode() * 20_000), 413),
    "an odd pin": (chat(**{"x-trimtab-pin": "1e9"}), 400),
    "a stranger": (chat(**{"x-trimtab-key": f"wrong-{SECRET}"}), 401),
    "a stranger to the pages": (
        other("GET", "/metrics", **{"x-trimtab-key": "", "authorization": f"Basic {BASIC}"}),
        401,
    ),
    "a large head": (chat(**{"x-large": SECRET * 2000}), 431),
    "passed through": (other("GET", f"/v1/models/{SECRET}?key={SECRET}"), 200),
    "an upload that fails": (other("POST", "/v1/files", "reset"), 502),
    "a preview": (other("POST", "/trimtab/preview"), None),
}


LISTS = ("overview", "decisions?limit=500", "conversations")


def everything(folder: Path, pattern: str) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob(pattern))


async def test_nothing_that_is_written_has_a_secret_in_it(
    replica: Replica, upstream: FakeUpstream, tmp_path: Path, collector: Collector
) -> None:
    upstream.handler = answering
    answers: dict[str, int | None] = {}
    async with replica.client() as client:
        for name, (request, expected) in REQUESTS.items():
            path = request.url.raw_path.decode()
            fields = {k: v for k, v in request.headers.items() if k not in ("host", "content-length")}
            try:
                answers[name] = (
                    await client.request(request.method, path, content=request.content, headers=fields)
                ).status_code
            except httpx2.RemoteProtocolError:
                answers[name] = 0
            answers[name] = None if expected is None else answers[name]
        await asyncio.sleep(0.3)  # for the writer of records
        own = {"x-trimtab-key": KEY}
        metrics = (await client.get("/metrics", headers=own)).content
        dashboard = [(await client.get(f"/trimtab/api/{name}", headers=own)).content for name in LISTS]
        for decision in json.loads(dashboard[LISTS.index("decisions?limit=500")])["decisions"]:
            page = await client.get(f"/trimtab/api/decisions/{decision['audit_id']}", headers=own)
            dashboard.append(page.content)
    state = everything(tmp_path, "state.db*")
    await asyncio.to_thread(replica.stop)  # the collector, in this loop, gets the last spans
    records, log = everything(tmp_path, "replica/audit.jsonl"), everything(tmp_path, "replica/log")

    assert answers == {name: expected for name, (_, expected) in REQUESTS.items()}
    assert {json.loads(line)["action"] for line in records.splitlines() if b'"action"' in line} >= {
        "pass",
        "trimmed",
        "shadow",
    }
    assert len(state) > 10_000
    assert b"trimtab_requests" in metrics
    assert len(dashboard) > len(LISTS) + 5
    assert {"trimmed", "shadow"} <= {span.attributes.get("trimtab.action") for span in collector.told}
    assert b"listening" in log
    told = {"dashboard": b"".join(dashboard), "spans": b"".join(collector.raw)}
    for what, written in {"records": records, "log": log, "metrics": metrics, "state": state, **told}.items():
        for form in (SECRET, SECRET[:9], SECRET.replace("-", "_"), BASIC, json.dumps(SECRET)[1:-1]):
            assert form.encode() not in written, f"{form!r} is in the {what}"
            assert form.encode("utf-16-le") not in written, what
    assert any(SECRET.encode() in bytes(exchange.body) for exchange in upstream.exchanges), "it did go where it belongs"
    assert not any(KEY.encode() in exchange.head for exchange in upstream.exchanges), "the proxy's own key stays here"
    assert all(b"/v1/" in exchange.target for exchange in upstream.exchanges), "no redirect was followed"
