"""What is needed to look at what is shipped: tools in an environment of their own, and what is built."""

import os
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools" / "bin"


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """The standard output of a command that has to succeed; it gets nothing of this environment but what it needs."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME") or "CERT" in name or name.startswith("SSL_")
    }
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def tool(name: str) -> Path:
    """A tool by its name; without it the test is skipped."""
    if not (TOOLS / name).exists():
        pytest.skip(f"{name} is not installed here: make package")
    return TOOLS / name


@dataclass(frozen=True)
class Built:
    """What is published."""

    wheel: Path
    sdist: Path

    @property
    def source(self) -> str:
        """The folder that the sdist unpacks to."""
        return self.sdist.name.removesuffix(".tar.gz")

    def unpacked(self, folder: Path) -> Path:
        """The sdist's content, below this folder."""
        with tarfile.open(self.sdist) as archive:
            archive.extractall(folder, filter="data")
        return folder / self.source


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    (sdist,) = SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Built(Path(wheel), Path(sdist))
