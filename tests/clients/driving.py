"""Runs a client through the proxy: the proxy is a process, the client is one, and all three talk over sockets."""

import json
import os
import struct
import subprocess
import time
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.clients.scripted import Scripted, words
from tests.proxy.replicas import Replica

WINDOW, RESERVE = 2400, 600
WIDE = 5600  # for who has long instructions
PATIENCE_S = 240
SETTINGS = f"""
embeddings: {{backend: none}}
defaults: {{window: {WINDOW}, reserve_output: {RESERVE}, policy: fifo}}
routes:
  - {{name: hybrid, match: {{path: /hybrid}}, policy: hybrid}}
  - {{name: wide, match: {{path: /wide}}, window: {WIDE}}}
  - {{name: rest}}
"""


def _picture() -> str:
    """A red picture of 64 by 64 pixels as a data URL."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(b"".join(b"\0" + b"\xc0\x10\x10" * 64 for _ in range(64)))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0))
    return (
        "data:image/png;base64,"
        + b64encode(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")).decode()
    )


TALK = {
    "model": "gpt-4o",
    "system": "You help the harbour office.",
    "questions": [f"Question {n}: what of {words(n, 75)}, é 水 😀?" for n in range(15)],
    "slow": "Tell me everything [slow].",
    "fails": "And once more [fails].",
    "task": "Find out which berth the Halcyon may use.",
    "result": "Berth {berth}: " + words(3, 90),
    "edit": "Write down where the Halcyon lies [edit].",
    "schema_question": "Where does the Halcyon lie?",
    "image": _picture(),
}


@dataclass(frozen=True)
class Ran:
    """What a client said that it was told, and what the upstream and the proxy have to say about it."""

    told: list[Any]
    said: list[dict[str, Any]]
    sent: list[dict[str, Any]]  # chat requests as they reached the upstream
    sizes: list[int]
    wrong: list[str]
    exchanges: Sequence[Any]
    records: list[dict[str, Any]]

    @property
    def cuts(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["slots_evicted"]]


@dataclass
class Bench:
    """A proxy in front of a scripted upstream."""

    upstream: Scripted
    proxy: Replica
    folder: Path
    _runs: Iterator[int] = field(default_factory=count)  # each is a conversation of its own

    def run(self, command: Sequence[str | Path], *, path: str = "", folder: Path | None = None) -> Ran:
        """Run a client to its end."""
        seen = self.upstream
        before = len(seen.exchanges), len(seen.said), len(seen.wrong), len(seen.sizes)
        records = len(written(self.proxy))
        talk = {**TALK, "system": f"{TALK['system']} This is run {next(self._runs)}."}
        told = launched(command, f"http://127.0.0.1:{self.proxy.port}{path}/v1", talk, folder or self.folder)
        exchanges = self.upstream.exchanges[before[0] :]
        chats = [each.json for each in exchanges if each.target.startswith(b"/v1/chat/completions")]
        return Ran(
            told=told,
            said=self.upstream.said[before[1] :],
            sent=chats,
            sizes=self.upstream.sizes[before[3] :],
            wrong=self.upstream.wrong[before[2] :],
            exchanges=exchanges,
            records=self._decisions(records, len(chats)),
        )

    def _decisions(self, since: int, count: int) -> list[dict[str, Any]]:
        """The audit records since then, as soon as there are so many of chat requests."""
        until = time.monotonic() + 10
        while True:
            found = [each for each in written(self.proxy)[since:] if each["event"] == "decision"]
            if len(found) >= count or time.monotonic() > until:
                return found
            time.sleep(0.05)


def launched(
    command: Sequence[str | Path], base_url: str, talk: dict[str, Any], folder: Path, patience_s: float = PATIENCE_S
) -> list[Any]:
    """What a client was told. It gets nothing but a base URL and a key."""
    said = folder / "talk.json"
    said.write_text(json.dumps(talk))
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ},
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": "sk-client",
        "TALK": str(said),
        "HOME": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    ended = subprocess.run(
        [str(part) for part in command],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told: list[Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return told


def written(proxy: Replica) -> list[dict[str, Any]]:
    """The audit records of a proxy."""
    text = proxy.audit.read_text() if proxy.audit.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
