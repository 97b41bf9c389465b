"""A proxy in a process of its own, watched from outside: memory, file descriptors, connections and tasks.

`python -m bench.served CONFIG PORT` is that process: the application as `trimtab serve` runs it, and `/bench/tasks`,
which tells how many asyncio tasks there are.
"""

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from starlette.types import Receive, Scope, Send

from proxy import serving
from proxy.http.heads import BoundedHeads


def held_up_s(pid: int | str = "self") -> float:
    """Seconds that a process's main thread has waited for a processor that others had; 0 where nobody tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory of the proxy: the bytes that it holds, and the most that it may hold."""

    held: float
    most: float

    @property
    def share(self) -> float:
        """How full it is."""
        return self.held / self.most if self.most else 0.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the process holds: `rss_mb`, `fds`, asyncio `tasks`, and requests whose answer has not ended.

    `memories` are those that the proxy bounds, by name.
    """

    rss_mb: float
    fds: int
    tasks: int
    requests: int
    memories: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def remembered_mb(self) -> float:
        """What all memories hold together."""
        return sum(each.held for each in self.memories.values()) / 2**20


_MEMORY = re.compile(rb'(?m)^trimtab_memory_(limit_)?bytes\{memory="(\w+)"\} (\S+)')


@dataclass(slots=True)
class Served:
    """The running proxy."""

    port: int
    pid: int
    audit: Path

    async def vitals(self) -> Vitals:
        """What the process holds now, the connection that asks apart."""
        tasks = int((await self.get("/bench/tasks")).split()[-1])
        page = await self.get("/metrics")
        open_ = re.search(rb"(?m)^trimtab_requests_open (\S+)", page)
        fds = len(os.listdir(f"/proc/{self.pid}/fd"))
        return Vitals(self._rss_mb(), fds, tasks, 0 if open_ is None else int(float(open_[1])), _memories(page))

    def _rss_mb(self) -> float:
        rss = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert rss is not None
        return int(rss[1]) / 1024

    async def get(self, path: str) -> bytes:
        """The whole response of one of the proxy's own paths, head included."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        try:
            return await reader.read()
        finally:
            writer.close()


def _memories(page: bytes) -> dict[str, Memory]:
    """The memories that a page of metrics tells of."""
    told = {(bool(limit), name.decode()): float(value) for limit, name, value in _MEMORY.findall(page)}
    return {name: Memory(held, told[True, name]) for (limit, name), held in told.items() if not limit}


@asynccontextmanager
async def served(upstream: str, settings: str, *, idle_s: float = 3.0) -> AsyncIterator[Served]:
    """A proxy in front of the upstream at a URL; `settings` is YAML without `upstreams` and `audit`.

    An upstream that is silent for `idle_s` seconds is given up.
    """
    with TemporaryDirectory(prefix="trimtab-bench-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        audit, file = Path(folder) / "audit.jsonl", Path(folder) / "config.yaml"
        file.write_text(
            f"upstreams: {{fake: {{base_url: '{upstream}/v1', idle_timeout_s: {idle_s}}}}}\n"
            f"audit: {{path: '{audit}', keep_rows: 1000}}\nembeddings: {{backend: none}}\n{settings}\n"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.served", str(file), str(port)), stderr=subprocess.DEVNULL
        )
        running = Served(port, process.pid, audit)
        try:
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(OSError):
                        if b" 200 " in await running.get("/readyz"):
                            break
                    await asyncio.sleep(0.1)
            yield running
        finally:
            process.terminate()
            await process.wait()


def main(file: str, port: int) -> None:
    """Serve until stopped."""
    os.environ[serving.CONFIG_VARIABLE] = file
    app = serving.worker()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") != "/bench/tasks":
            await app(scope, receive, send)
            return
        tasks = b"%d" % len(asyncio.all_tasks())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(tasks))]})
        await send({"type": "http.response.body", "body": tasks})

    options = {"access_log": False, "log_level": "error", "ws": "none", "server_header": False, "date_header": False}
    uvicorn.run(watched, host="127.0.0.1", port=port, http=BoundedHeads, timeout_graceful_shutdown=1, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
