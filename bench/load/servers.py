"""The servers that are measured: the upstream, trimtab and its peers, each a process of its own on this machine."""

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load.requests import TIGHT

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


def peer(given: str) -> tuple[str, str]:
    """Name and command of `NAME=COMMAND`.

    Raises:
        ValueError: it has another form, or a name that is taken.
    """
    name, found, command = given.partition("=")
    if not (name and found and "{port}" in command) or name in (DIRECT, OURS):
        raise ValueError(f"--peer: must be NAME=COMMAND with {{port}} in the command, and a new name, got {given!r}")
    return name, command


@contextmanager
def serving(peers: dict[str, str], folder: Path, config: Path | None, workers: int) -> Iterator[dict[str, Server]]:
    """The servers by name, the upstream first, until the context is left.

    In a peer's command `{port}` is where it is to listen, `{upstream}` the upstream's port and `{folder}` a place for
    what it writes.
    """
    upstream = free_port()
    settings = folder / "config.yaml"
    settings.write_text(
        config.read_text().replace("{upstream}", str(upstream)) if config else _config(upstream, folder)
    )
    ours = f"{shlex.quote(sys.executable)} -m proxy serve --config {settings} --port {{port}} --workers {workers}"
    commands = {DIRECT: f"{shlex.quote(sys.executable)} -m bench.load.upstream {upstream}", OURS: ours, **peers}
    with ExitStack() as stack:
        found: dict[str, Server] = {}
        for name, command in commands.items():
            port = upstream if name == DIRECT else free_port()
            own = folder / name
            own.mkdir()
            for key, value in (("port", port), ("upstream", upstream), ("folder", own)):
                command = command.replace(f"{{{key}}}", str(value))
            log = stack.enter_context((own / "log").open("wb"))
            process = subprocess.Popen(shlex.split(command), stdout=log, stderr=log)
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


def wait_for(port: int, process: "subprocess.Popen[bytes]", timeout_s: float = 60.0) -> None:
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


def _config(upstream: int, folder: Path) -> str:
    return (
        f"upstreams: {{bench: {{base_url: 'http://127.0.0.1:{upstream}/v1'}}}}\n"
        f"audit: {{path: '{folder}/audit.jsonl'}}\n"
        "defaults: {window: 200000, policy: {name: priority}}\n"
        f"routes: [{{name: tight, match: {{model: '{TIGHT}'}}, window: 32000}}, {{name: default}}]\n"
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
