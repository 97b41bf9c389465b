"""The servers that are measured: the upstream, trimtab and its peers, each a process of its own on this machine."""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.peers import Peer
from bench.load.requests import HYBRID, TIGHT

DIRECT, OURS = "direct", "trimtab"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A process that listens on a port of 127.0.0.1."""

    name: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        """Processor time that it and its children have taken, in seconds."""
        return sum(_cpu_s(pid) for pid in _tree(self.pid))


@contextmanager
def serving(
    peers: Mapping[str, Peer], folder: Path, config: Path | None, workers: int, *, hybrid: bool = False
) -> Iterator[dict[str, Server]]:
    """The servers by name, the upstream first, until the context is left.

    Several `workers` share an SQLite state. With `hybrid` trimtab has a route for HYBRID.
    """
    upstream = free_port()
    file = folder / "config.yaml"
    file.write_text(
        config.read_text().replace("{upstream}", str(upstream))
        if config
        else settings(upstream, folder, workers, hybrid=hybrid)
    )
    ours = f"{shlex.quote(sys.executable)} -m proxy serve --config {file} --port {{port}} --workers {workers}"
    direct = f"{shlex.quote(sys.executable)} -m bench.load.upstream {upstream}"
    started = {DIRECT: Peer(command=direct), OURS: Peer(command=ours), **peers}
    with ExitStack() as stack:
        found: dict[str, Server] = {}
        for name, peer in started.items():
            port = upstream if name == DIRECT else free_port()
            own = folder / name
            own.mkdir()
            command = _filled(peer.command, port, upstream, own)
            for named, text in peer.files.items():
                (own / named).write_text(_filled(text, port, upstream, own))
            log = stack.enter_context((own / "log").open("wb"))
            process = subprocess.Popen(shlex.split(command), stdout=log, stderr=log, start_new_session=True)
            stack.callback(_stop, process)
            try:
                wait_for(port, process)
            except (TimeoutError, ChildProcessError) as error:
                raise RuntimeError(f"{name}: {error}\n{(own / 'log').read_text()[-2000:]}") from error
            found[name] = Server(name, port, process.pid)
        yield found


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_for(port: int, process: "subprocess.Popen[bytes]", timeout_s: float = 180.0) -> None:
    """Return once a process listens on a port of 127.0.0.1.

    Raises:
        TimeoutError: it does not in time.
        ChildProcessError: it has ended.
    """
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            raise ChildProcessError(f"ended with {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


def audit_file(folder: Path) -> Path:
    """Where trimtab writes its audit records, unless it was given a configuration."""
    return folder / "audit.jsonl"


def _filled(text: str, port: int, upstream: int, folder: Path) -> str:
    for key, value in (("port", port), ("upstream", upstream), ("folder", folder)):
        text = text.replace(f"{{{key}}}", str(value))
    return text


def settings(upstream: int, folder: Path, workers: int, *, hybrid: bool = False) -> str:
    """A configuration of trimtab, all at its defaults, but for routes with a window that requests do not fit."""
    tried = f"{{name: hybrid, match: {{model: '{HYBRID}'}}, policy: {{name: hybrid}}, window: 32000}}, "
    return (
        f"upstreams: {{bench: {{base_url: 'http://127.0.0.1:{upstream}/v1'}}}}\n"
        f"audit: {{path: '{audit_file(folder)}'}}\n"
        f"state: {'memory://' if workers == 1 else f'sqlite:///{folder}/state.db'}\n"
        "defaults: {window: 200000, policy: {name: priority}}\n"
        f"routes: [{tried if hybrid else ''}{{name: tight, match: {{model: '{TIGHT}'}}, window: 32000}}, "
        "{name: default}]\n"
    )


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = [c for path in Path(f"/proc/{pid}/task").glob("*/children") for c in path.read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
