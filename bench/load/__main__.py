"""Added latency of the proxy against its upstream, in turn, in one run: `python -m bench.load [--rounds N]`."""

import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.load.client import Connection

SIZES = {"2 KB": 2_000, "50 KB": 50_000, "500 KB": 500_000}
WORDS = ("the", "tide", "turns", "at", "the", "quay", "and", "a", "crane", "lifts", "what", "its", "manifest", "names")


def chat(size: int, *, stream: bool = False) -> bytes:
    """A chat request of about `size` bytes, in messages of about 400."""
    messages = [{"role": "system", "content": "You help the harbour office."}]
    number = 0
    while sum(len(m["content"]) + 35 for m in messages) < size:
        text = " ".join(WORDS[(number * 5 + i * 3) % len(WORDS)] for i in range(70))
        messages.append({"role": "assistant" if number % 2 else "user", "content": f"{number}: {text}"[: size - 100]})
        number += 1
    messages.append({"role": "user", "content": "And now?"})
    return json.dumps({"model": "gpt-4o", "messages": messages, **({"stream": True} if stream else {})}).encode()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_for(port: int, timeout_s: float = 30.0) -> None:
    """Return once somebody listens on a port of 127.0.0.1."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


async def latency(ports: dict[str, int], body: bytes, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each request, one after the other, the servers in turn."""
    connections = {name: Connection(port) for name, port in ports.items()}
    for connection in connections.values():
        await connection.open()
    times: dict[str, list[float]] = {name: [] for name in ports}
    for number in range(rounds + rounds // 10):
        for name, connection in connections.items():
            taken = await connection.post(body)
            if number >= rounds // 10:
                times[name].append(taken * 1000)
    for connection in connections.values():
        connection.close()
    return times


async def throughput(port: int, body: bytes, seconds: float, connections: int = 8) -> float:
    """Requests a second over some connections."""
    done = 0
    until = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal done
        connection = Connection(port)
        await connection.open()
        while time.perf_counter() < until:
            await connection.post(body)
            done += 1
        connection.close()

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return done / (time.perf_counter() - start)


async def streaming(ports: dict[str, int], body: bytes, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Milliseconds to the first byte, and of each chunk's delay, the servers in turn."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ports}
    for _ in range(rounds):
        for name, port in ports.items():
            connection = Connection(port)
            await connection.open()
            first, delays = await connection.stream(body)
            connection.close()
            found[name][0].append(first * 1000)
            found[name][1].extend(delay * 1000 for delay in delays)
    return found


def quantile(values: list[float], share: float) -> float:
    """The value under which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(ports: dict[str, int], rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Every figure, by row: added milliseconds at P50 and P99, and requests a second of proxy and upstream."""
    rows: dict[str, dict[str, float]] = {}
    for label, size in SIZES.items():
        body = chat(size)
        times = await latency(ports, body, rounds if size < 100_000 else rounds // 4)
        direct, proxy = times["direct"], times["trimtab"]
        rows[label] = {
            "direct_p50_ms": statistics.median(direct),
            "proxy_p50_ms": statistics.median(proxy),
            "added_p50_ms": statistics.median(proxy) - statistics.median(direct),
            "added_p99_ms": quantile(proxy, 0.99) - quantile(direct, 0.99),
            "direct_per_s": await throughput(ports["direct"], body, seconds),
            "proxy_per_s": await throughput(ports["trimtab"], body, seconds),
        }
    streams = await streaming(ports, chat(2_000, stream=True), max(5, rounds // 50))
    rows["stream 2 KB, first byte"] = _added(streams["direct"][0], streams["trimtab"][0])
    rows["stream 2 KB, each chunk"] = _added(streams["direct"][1], streams["trimtab"][1])
    return rows


def _added(direct: list[float], proxy: list[float]) -> dict[str, float]:
    return {
        "direct_p50_ms": statistics.median(direct),
        "proxy_p50_ms": statistics.median(proxy),
        "added_p50_ms": statistics.median(proxy) - statistics.median(direct),
        "added_p99_ms": quantile(proxy, 0.99) - quantile(direct, 0.99),
    }


def table(rows: dict[str, dict[str, float]]) -> Table:
    """The rows for people."""
    columns = ("direct_p50_ms", "proxy_p50_ms", "added_p50_ms", "added_p99_ms", "direct_per_s", "proxy_per_s")
    made = Table("request", *(column.replace("_", " ") for column in columns))
    for label, row in rows.items():
        made.add_row(
            label,
            *(f"{row[c]:.2f}" if c.endswith("ms") else f"{row[c]:.0f}" if c in row else "" for c in columns if True),
        )
    return made


def main(rounds: int = 400, seconds: float = 3.0, out: Path | None = None, config: Path | None = None) -> None:
    """Start an upstream and the proxy in front of it, measure both, print a table, and write JSON to `out`."""
    ports = {"direct": free_port(), "trimtab": free_port()}
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "config.yaml"
        settings.write_text(
            config.read_text()
            if config
            else f"upstreams: {{bench: {{base_url: 'http://127.0.0.1:{ports['direct']}/v1'}}}}\n"
            f"audit: {{path: '{folder}/audit.jsonl'}}\n"
            "defaults: {window: 200000}\n"
        )
        commands = (
            ["-m", "bench.load.upstream", str(ports["direct"])],
            ["-m", "proxy", "serve", "--config", str(settings), "--port", str(ports["trimtab"])],
        )
        running = [subprocess.Popen([sys.executable, *command]) for command in commands]
        try:
            for port in ports.values():
                wait_for(port)
            rows = uvloop.run(measure(ports, rounds, seconds))
        finally:
            for process in running:
                process.terminate()
                process.wait()
    Console(width=120).print(table(rows))
    if out is not None:
        out.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    typer.run(main)
