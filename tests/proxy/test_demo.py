"""`trimtab demo`, as somebody in a terminal has it."""

import fcntl
import io
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console

from proxy import demo
from proxy.demo import playing, stage, talk

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self._shown = b""

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self._shown.decode(errors="replace")).replace("\r\n", "\n")

    def until(self, words: str) -> None:
        """Read on until these words are there."""
        until = time.monotonic() + PATIENCE_S
        while words not in self.text:
            assert time.monotonic() < until, self.text
            assert self._read(), f"ended before {words!r}:\n{self.text}"

    def press(self, key: bytes) -> None:
        os.write(self._screen, key)

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # EIO is what Linux says where nobody writes any more
            return False
        self._shown += data
        return bool(data)


@contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "demo", *arguments],
        cwd=ROOT,
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, "TERM": "xterm-256color"},
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(end)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def test_the_dashboard_stays_up_until_ctrl_c() -> None:
    with terminal("--speed", "0") as shown:
        shown.until("stays up until Ctrl-C")
        address = re.findall(r"http://127\.0\.0\.1:\d+/trimtab/", shown.text)[-1]
        with urlopen(address) as page:
            assert page.status == 200
        shown.press(b"\x03")
        code = shown.end()

    assert code == 0, shown.text
    assert "Traceback" not in shown.text
    assert "cut by hybrid" in shown.text


def test_ctrl_c_ends_it_in_the_middle() -> None:
    with terminal() as shown:
        shown.until(" 2 you")
        shown.press(b"\x03")
        code = shown.end()

    assert code == 0
    assert shown.text.rstrip().endswith("ended")
    assert "Traceback" not in shown.text


@pytest.fixture(scope="module")
def played() -> str:
    console = Console(file=io.StringIO(), width=100)
    demo.play(console, speed=0, leave=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_window_fills_and_is_cut(played: str) -> None:
    assert played.count("cut by hybrid") >= 2
    shares = [int(used.replace(",", "")) for used in re.findall(r"▏ ([\d,]+) of 1,200", played)]
    assert len(shares) > 20
    assert max(shares) <= 1200 * playing.EVICT, "never over the threshold"
    assert shares != sorted(shares)


@pytest.mark.parametrize("fact", ["7730", "between 22:00 and 5:00"], ids=["pinned", "brought back"])
def test_what_was_said_long_before_is_known_to_the_model(played: str, fact: str) -> None:
    """The upstream answers from its prompt alone, and by then most of the talk is not in it."""
    told = " ".join(played.split("again?")[1].split())

    assert fact in told.split("Thank you.")[0]


def test_every_turn_is_played(played: str) -> None:
    turns = len(talk.load().turns)

    assert f"{turns} turns" in played
    assert re.search(rf"^{turns} you", played, re.MULTILINE)


def test_a_port_in_use_is_told_with_what_would_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "proxy", "demo", "--exit", "--port", str(port)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr.strip() == f"trimtab: --port: {port} cannot be used: Address already in use; 0 takes a free one"


def test_what_the_bars_are_marked_with_is_what_the_proxy_does() -> None:
    (route,) = stage.routes("http://127.0.0.1:1")

    assert (route.thresholds.evict, route.targets.evict) == (playing.EVICT, playing.TARGET)
    assert (route.window, route.reserve_output) == (stage.WINDOW, stage.RESERVE)
