"""What auditing costs: `python -m bench.auditing measure`.

Two proxies are asked in turns, in one run, by one connection each: one that writes every record to a file and a store,
and one with auditing taken out of it, which no setting does. Then a store is filled with decisions, and the dashboard's
API is asked. Milliseconds; what is said of the request is from its first byte sent to the last of its answer.
"""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeVar
from urllib.request import ProxyHandler, build_opener

import typer
import uvicorn
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console
from rich.table import Table

from bench.load.client import Connection
from bench.load.requests import chat, growing
from bench.load.servers import free_port, wait_for
from proxy import config as configs
from proxy.app import create_app
from proxy.audit import Audit
from proxy.audit.store import AuditStore
from proxy.pipeline.outcome import Outcome
from proxy.telemetry.tracing import Tracing
from proxy.upstream import Place

WINDOW = 10_000  # tokens; what grows beyond is cut
API = (
    "overview?span=604800",
    "overview?span=604800&route=main",
    "decisions",
    "decisions?action=trimmed",
    "conversations",
)
TIMES = 15  # each question is asked so often

T = TypeVar("T")

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """The same requests to both proxies, in seconds."""

    audited: Sequence[float]
    without: Sequence[float]

    @property
    def costs_ms(self) -> float:
        """What auditing adds at P50."""
        return (statistics.median(self.audited) - statistics.median(self.without)) * 1000


@app.command()
def measure(
    rounds: Annotated[int, typer.Option(min=20, help="Requests of each kind to each proxy.")] = 400,
    decisions: Annotated[int, typer.Option(min=1, help="How many are stored when the dashboard is asked.")] = 100_000,
) -> None:
    """Measure both and print two tables."""
    with TemporaryDirectory() as folder:
        on_the_path(Path(folder), rounds)
        Console().print(f"Where traces are on, its spans take {spans_ms():.3f} ms more")
        behind_the_dashboard(Path(folder), decisions)


@app.command()
def serve(config: Path, port: int, spent: Path, audited: Annotated[bool, typer.Option()] = True) -> None:
    """Run one of the proxies that are measured; `spent` gets the processor time of the event loop, by request."""
    taken: list[float] = []
    if audited:
        Outcome.record = _timed(Outcome.record, taken)  # type: ignore[method-assign]
        Audit.put = _timed(Audit.put, taken)  # type: ignore[method-assign]
    else:
        Outcome.record = lambda self, **_: {}  # type: ignore[assignment,method-assign]
        Audit.put = lambda self, record, *, error=False: None  # type: ignore[method-assign]
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn stops, then sends itself the signal once more
    uvicorn.run(
        create_app(configs.load(config), {}),
        host="127.0.0.1",
        port=port,
        access_log=False,
        log_level="warning",
        ws="none",
    )
    if taken:
        spent.write_text(str(sum(taken) / (len(taken) / 2) * 1000))  # a record is made, and put


def _timed(work: Callable[..., T], taken: list[float]) -> Callable[..., T]:
    def timed(*given: object, **named: object) -> T:
        start = time.thread_time()
        try:
            return work(*given, **named)
        finally:
            taken.append(time.thread_time() - start)

    return timed


def on_the_path(folder: Path, rounds: int) -> None:
    """Ask both proxies for requests that fit, and for one that grows and is cut again and again."""
    upstream = free_port()
    with ExitStack() as stack:
        stack.enter_context(_process(upstream, "bench.load.upstream", str(upstream)))
        ports, spent = [free_port(), free_port()], folder / "spent"
        for port, audited in zip(ports, ("--audited", "--no-audited"), strict=True):
            file = folder / f"{port}.yaml"
            file.write_text(
                f"upstreams: {{bench: {{base_url: 'http://127.0.0.1:{upstream}/v1'}}}}\n"
                f"audit: {{path: '{folder}/{port}.jsonl', store: 'sqlite:///{folder}/{port}.db'}}\n"
                f"defaults: {{window: {WINDOW}, policy: priority}}\nroutes: [{{name: main}}]\n"
            )
            stack.enter_context(_process(port, "bench.auditing", "serve", str(file), str(port), str(spent), audited))
        kinds = {
            "2 KB, not counted": iter(lambda: chat(2_000), None),
            "30 KB, counted, fits": iter(lambda: chat(30_000), None),
            "40 KB and growing, cut": growing(40_000),
        }
        pairs = {name: asyncio.run(_paired(bodies, ports, rounds)) for name, bodies in kinds.items()}
    table = Table("request", "P50 audited", "P50 without", "auditing adds", box=None)
    for name, pair in pairs.items():
        each = (statistics.median(times) * 1000 for times in (pair.audited, pair.without))
        table.add_row(name, *(f"{ms:.3f}" for ms in each), f"{pair.costs_ms:+.3f}")
    Console().print(table)
    Console().print(f"The event loop's own part: {float(spent.read_text()):.3f} ms of processor time a request")


async def _paired(bodies: Iterator[bytes], ports: Sequence[int], rounds: int) -> Pair:
    connections = [Connection(port) for port in ports]
    times: list[list[float]] = [[], []]
    for connection in connections:
        await connection.open()
    for turn in range(rounds + 20):
        body = next(bodies)
        order = (0, 1) if turn % 2 else (1, 0)
        for which in order:
            took = await connections[which].post(body)
            if turn >= 20:  # the first ones are to warm up
                times[which].append(took)
            await asyncio.sleep(0.002)  # so that what is done after the answer is not in the next one's way
    for connection in connections:
        connection.close()
    return Pair(*times)


def spans_ms(rounds: int = 3000) -> float:
    """Processor time that the spans of one request take on the event loop; exporting them is a thread's."""
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracing, place, record = Tracing(provider, exporter), Place("bench", "127.0.0.1", 80), _record(10, time.time())
    fields = [(b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), (b"accept", b"*/*")]
    start = time.thread_time()
    for _ in range(rounds):
        span = tracing.begin(fields)
        span.about("main", "gpt-4o", place)
        span.asking(fields, place)
        span.answered(200)
        span.end(record)
    taken = time.thread_time() - start
    tracing.close()
    return taken / rounds * 1000


def behind_the_dashboard(folder: Path, decisions: int) -> None:
    """Fill a store, start a proxy on it, and ask what the dashboard asks."""
    file, config, port = folder / "audit.db", folder / "stored.yaml", free_port()
    store = AuditStore(file, rows=decisions)
    store.open()
    now = time.time()
    for number in range(decisions):
        store.put(_record(number, now - 6 * 86_400 * (decisions - number) / decisions))
    store.close()
    config.write_text(
        f"audit: {{path: /dev/null, store: 'sqlite:///{file}', keep_rows: {decisions}}}\n"
        "routes: [{name: main}, {name: b}]\n"
    )
    table = Table("GET /trimtab/api/", "first", "P50", "worst", box=None)
    with _process(port, "proxy", "serve", "--config", str(config), "--port", str(port)):
        time.sleep(2)  # the proxy reads what is there when it starts
        for path in (*API, f"decisions/{decisions - 1:016x}"):
            times = [_asked(port, path) for _ in range(TIMES)]

            table.add_row(path, *(f"{ms:.0f}" for ms in (times[0], statistics.median(times), max(times))))
    Console().print(f"\n{decisions:,} stored decisions", table)


def _asked(port: int, path: str) -> float:
    opener = build_opener(ProxyHandler({}))
    start = time.perf_counter()
    with opener.open(f"http://127.0.0.1:{port}/trimtab/api/{path}") as answer:
        json.loads(answer.read())
    return (time.perf_counter() - start) * 1000


@contextmanager
def _process(port: int, module: str, *arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        yield
    finally:
        process.terminate()
        process.wait(15)


def _record(number: int, at: float) -> dict[str, object]:
    """A decision like those of a busy day: every tenth a cut, of a conversation of some twenty requests."""
    cut = number % 10 == 0
    slots = [
        {
            "index": n,
            "messages": [n],
            "id": f"m{n}",
            "role": "user" if n % 2 else "assistant",
            "tokens": 200,
            "action": "evict" if cut and n < 15 else "keep",
            "pinned": False,
            "protected": False,
            "score": None,
            "reason": "oldest first",
        }
        for n in range(40 if cut else 0)
    ]
    return {
        "time": _iso(at),
        "level": "info",
        "event": "decision",
        "audit_id": f"{number:016x}",
        "route": "main" if number % 3 else "b",
        "model": f"gpt-4o-{number % 7}",
        "mode": "enforce",
        "conversation": f"{number // 20:016x}",
        "action": "trimmed" if number % 2 else "pass",
        "trigger": "normal" if cut else None,
        "policy": ("hybrid", "priority", "fifo")[number % 3],
        "window": 16_000,
        "reserve": 4000,
        "budget": 12_000,
        "target": 8400 if cut else None,
        "tokens_before": 9000 + number % 6000,
        "tokens_after": 8000 + number % 900,
        "overhead_tokens": 40,
        "utilization_before": 0.9,
        "utilization_after": 0.7,
        "slots_total": 55,
        "slots_evicted": 15 if cut else 0,
        "tokens_freed": 1000,
        "cache_prefix_tokens": 7000,
        "cache_lost_tokens": 900 if cut else 0,
        "overhead_ms": {"parse": 0.1, "total": 0.4 + number % 100 / 100},
        "held_ms": 0.0,
        "faults": [],
        "status": 200,
        "usage": {"prompt_tokens": 8000, "completion_tokens": 90, "cached_tokens": 6000},
        "slots": slots,
    }


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + "+00:00"


if __name__ == "__main__":
    app()
