"""Workers as processes of their own, one each: `python -m tests.proxy.replicas CONFIG PORT MARK_TTL_S`."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx2
import uvicorn

from proxy import config as configs
from proxy.app import create_app

ROOT = Path(__file__).parents[2]


class Replica:
    """One proxy process, with an audit file of its own."""

    def __init__(self, folder: Path, settings: str, *, upstream: str, command: Sequence[str] = ()) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        folder.mkdir(exist_ok=True)
        self.audit = folder / "audit.jsonl"
        self._config = folder / "config.yaml"
        self._config.write_text(
            f"upstreams: {{fake: {{base_url: '{upstream}/v1'}}}}\naudit: {{path: '{self.audit}'}}\n{settings}\n"
        )
        self._log = folder / "log"
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, mark_ttl_s: float = 60.0) -> None:
        own = ["-m", "tests.proxy.replicas", str(self._config), str(self.port), str(mark_ttl_s)]
        served = ["-m", "proxy", "serve", "--config", str(self._config), "--port", str(self.port), *self._command]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - starting a process does not wait for it
                [sys.executable, *(served if self._command else own)], cwd=ROOT, stdout=log, stderr=log
            )
        async with asyncio.timeout(90), self.client() as client:
            while True:
                assert self.process.poll() is None, self._log.read_text()
                try:
                    if (await client.get("/healthz")).status_code == 200:
                        return
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)

    def client(self, path: str = "") -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0 if self._command else 100)
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30, limits=limits)

    def workers(self) -> set[int]:
        """The processes that serve for a command with several workers."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {pid for pid in map(int, children) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}

    def kill(self) -> None:
        """SIGKILL: nothing is written, nobody is told."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()


def main(config: str, port: str, mark_ttl_s: str) -> None:
    app = create_app(configs.load(Path(config)), os.environ, mark_ttl_s=float(mark_ttl_s))
    uvicorn.run(app, host="127.0.0.1", port=int(port), access_log=False, log_level="warning", ws="none")


if __name__ == "__main__":
    main(*sys.argv[1:])
