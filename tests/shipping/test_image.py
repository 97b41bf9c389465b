"""The image, as far as a machine without a container engine allows: each step of its file, one after the other."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from proxy.cli import app  # noqa: F401 - what the image runs
from tests.fakes.server import RawClient  # noqa: F401
from tests.shipping.conftest import ROOT, run, tool

pytestmark = pytest.mark.slow
DOCKERFILE = ROOT / "Dockerfile"


def steps() -> Iterator[tuple[str, str]]:
    """The instructions, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        yield name, rest


class Image:
    """A folder in which the first stage is built as if it were the root of a file system."""

    def __init__(self, root: Path, base: str, arguments: dict[str, str]) -> None:
        self.root = root
        self.environment = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        self.arguments = arguments
        self._folder = root
        shims = root / "shims"
        shims.mkdir(parents=True)
        (shims / "python").symlink_to(shutil.which(base) or base)
        self._shims = shims

    def build(self) -> None:
        """Every step up to the second FROM, then what else the file says of the environment."""
        stages = 0
        for name, rest in steps():
            stages += name == "FROM"
            if name == "ENV":
                for pair in shlex.split(rest):
                    key, _, value = pair.partition("=")
                    self.environment[key] = self._here(value)
            elif stages == 1 and name != "FROM":
                getattr(self, f"_{name.lower()}")(rest)
        self.environment.pop("PATH")

    def _workdir(self, rest: str) -> None:
        self._folder = self.root / rest.lstrip("/")
        self._folder.mkdir(parents=True)

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.environment[name] = self.arguments.get(name, value)

    def _copy(self, rest: str) -> None:
        *sources, to = shlex.split(rest)
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, self._folder / to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, self._folder / to)

    def _run(self, rest: str) -> None:
        path = f"{self._shims}:{os.environ['PATH']}"
        run(["sh", "-euc", self._here(rest)], self._folder, **{**self.environment, "PATH": path})

    def _here(self, text: str) -> str:
        """The absolute paths of the image as they are in the folder."""
        return re.sub(r"(?<![\w.])/(build|venv|dist)\b", rf"{self.root}/\1", text)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Built without the embedding model unless WITH_EMBEDDINGS says otherwise: torch takes minutes."""
    arguments = {"WITH_EMBEDDINGS": os.environ.get("WITH_EMBEDDINGS", "0")}
    with TemporaryDirectory(prefix="trimtab-image-") as folder:
        Path(folder).chmod(0o755)  # for any user, as an image is
        made = Image(Path(folder), os.environ.get("IMAGE_PYTHON", sys.executable), arguments)
        made.build()
        yield made


def test_the_linter_has_nothing_to_say() -> None:
    assert run([tool("hadolint"), DOCKERFILE], ROOT) == ""


def test_the_second_stage_can_do_without_pip(tmp_path: Path) -> None:
    (removal,) = [rest for name, rest in steps() if name == "RUN" and "uninstall" in rest]
    run([sys.executable, "-m", "venv", tmp_path / "venv"], tmp_path)
    python = tmp_path / "venv/bin/python"

    run(["sh", "-euc", removal], tmp_path, PATH=f"{python.parent}:{os.environ['PATH']}")

    assert subprocess.run([python, "-m", "pip"], capture_output=True, check=False).returncode != 0
    assert not (image_pip := python.with_name("pip")).exists(), image_pip


def test_it_has_neither_pip_nor_what_builds(image: Image) -> None:
    there = {path.name.split("-")[0] for path in (image.root / "venv").glob("lib/python*/site-packages/*.dist-info")}

    assert "trimtab" in there
    assert there.isdisjoint({"pip", "hatchling", "wheel", "pytest"})
    assert "setuptools" not in there or "torch" in there, "which wants it at run time"


def read_only(image: Image, *command: str) -> tuple[list[str], dict[str, str]]:
    """A command of the image, and its environment, where nothing can be written, as the image's user.

    As root without capabilities where the interpreter's folder is closed to others.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("a read-only view of the file system needs root, unshare and setpriv")
    (user,) = [rest for name, rest in steps() if name == "USER"]
    uid = user.partition(":")[0]
    identity = ["--reuid", uid, "--regid", uid, "--clear-groups"] if _readable(image.root / "venv/bin/python") else []
    setpriv = ["setpriv", *identity, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    mounts = 'mount --rbind / "$0" && mount -o remount,ro,bind "$0" && exec chroot "$0" "$@"'
    view = image.root / "view"
    view.mkdir(exist_ok=True)
    program, *rest = command
    inside = [*setpriv, str(image.root / "venv/bin" / program), *rest]
    environment = {"PATH": os.environ["PATH"], **image.environment, "HOME": "/nonexistent"}
    return ["unshare", "--mount", "sh", "-c", mounts, str(view), *inside], environment


def test_it_runs_on_a_read_only_system_as_nobody_in_particular(image: Image) -> None:
    (entry,) = [rest for name, rest in steps() if name == "ENTRYPOINT"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command, environment = read_only(image, entry.strip('[]"'), "serve", "--host", "127.0.0.1", "--port", port)
    log = image.root / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=written)
    try:
        _healthy(process, port, log)
    finally:
        process.terminate()
        process.wait(20)
    assert process.returncode in (0, -signal.SIGTERM), log.read_text()


def test_the_model_works_there_too(image: Image) -> None:
    if image.arguments["WITH_EMBEDDINGS"] == "0":
        pytest.skip("this image was built without: WITH_EMBEDDINGS=1 make package")
    program = "from proxy.embeddings.sentence import SentenceTransformerEmbedder as E; print(E().embed(['a'])[0].shape)"
    command, environment = read_only(image, "python", "-c", program)

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "(1, 384)", done.stderr


def _readable(path: Path) -> bool:
    """Whether everybody may run what is there."""
    real = path.resolve()
    return all(each.stat().st_mode & 0o001 for each in (real, *real.parents))


def _healthy(process: "subprocess.Popen[bytes]", port: str, log: Path) -> None:
    """Wait until the image's own health check would be content."""
    until = time.monotonic() + 60
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as health:
                assert health.status == 200
                return
        except URLError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
