"""What is installed, built and shipped: locks, wheel, Makefile, image."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from importlib import metadata
from itertools import combinations
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proxy.config.schema import Server
from proxy.tokens import tokenizers

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = (
    *("requirements.lock", "requirements-build.lock", "requirements-dev.lock"),
    *("requirements-bench.lock", "requirements-otel.lock"),
)
PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;]+)(?: ; [^\\]+)? \\$")


def pins(lock: str) -> dict[str, str]:
    found = filter(None, map(PIN.match, (ROOT / lock).read_text().splitlines()))
    return {canonicalize_name(each["name"]): each["version"] for each in found}


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        ("requirements-build.lock", PROJECT["build-system"]["requires"]),
        ("requirements-dev.lock", [*PROJECT["dependency-groups"]["dev"], *PROJECT["dependency-groups"]["docs"]]),
        ("requirements-bench.lock", PROJECT["project"]["optional-dependencies"]["bench"]),
        ("requirements-otel.lock", PROJECT["project"]["optional-dependencies"]["otel"]),
    ],
    ids=LOCKS,
)
def test_a_lock_holds_what_the_project_asks_for(lock: str, wanted: list[str]) -> None:
    locked = pins(lock)

    for requirement in map(Requirement, wanted):
        version = locked.get(canonicalize_name(requirement.name), "nothing: `make lock`")
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_is_a_pin_or_its_hash(lock: str) -> None:
    """No address of an index, no path of a machine; and each pin has a hash."""
    lines = [line for line in (ROOT / lock).read_text().splitlines() if line and not line.startswith("#")]
    unhashed = [
        line for line, after in zip(lines, [*lines[1:], ""], strict=True) if "==" in line and "--hash" not in after
    ]

    assert [
        line for line in lines if not (PIN.match(line) or re.match(r"    --hash=sha256:[0-9a-f]{64}( \\)?$", line))
    ] == []
    assert unhashed == []


def test_the_locks_agree() -> None:
    for one, other in combinations(map(pins, LOCKS), 2):
        assert {name: one[name] for name in one.keys() & other} == {name: other[name] for name in one.keys() & other}


@pytest.mark.parametrize("python", ["3.11.0", "3.11.15", "3.12.0", "3.13.0"])
def test_the_lock_serves_every_python_that_the_project_takes(python: str) -> None:
    """What a locked release wants of an older or a newer Python than this one is locked too."""
    locked = pins("requirements.lock")
    other = {"python_full_version": python, "python_version": python.rpartition(".")[0], "extra": ""}
    wanted = {
        canonicalize_name(requirement.name): name
        for name in locked
        for requirement in map(Requirement, (_requires(name) or ()))
        if requirement.marker is None or requirement.marker.evaluate(other)
    }

    assert wanted
    assert {name: by for name, by in wanted.items() if name not in locked} == {}


def _requires(name: str) -> list[str] | None:
    try:
        return metadata.requires(name)
    except metadata.PackageNotFoundError:  # another system's
        return None


def test_the_wheel_has_both_packages_with_their_types_and_nothing_else(tmp_path: Path) -> None:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])

    with zipfile.ZipFile(built) as wheel:
        names = wheel.namelist()
        info = next(name.split("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        told = message_from_string(wheel.read(f"{info}/METADATA").decode())
        scripts = wheel.read(f"{info}/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {"policies", "proxy", info}
    static = {str(path.relative_to(ROOT)) for path in (ROOT / "proxy/dashboard/static").rglob("*") if path.is_file()}
    assert len(static) > 10
    assert static <= set(names)
    assert {"policies/py.typed", "proxy/py.typed", f"{info}/licenses/LICENSE"} <= set(names)
    sources = {
        str(path.relative_to(ROOT)) for package in ("policies", "proxy") for path in (ROOT / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == sources
    assert "trimtab = proxy.cli:main" in scripts
    assert (told["Name"], told["Version"]) == ("trimtab", PROJECT["project"]["version"])


# -- make


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    if program is None:
        pytest.skip("no make on this machine")
    # What an outer make hands down would change what this one prints.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = [program, "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_make_lists_its_targets() -> None:
    listed = make().stdout

    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert [line.split()[1] for line in listed.splitlines()] == phony[1].split()


@pytest.mark.parametrize("python", ["", "false", "/no/such/python3"], ids=["none found", "too old", "not there"])
def test_make_says_which_python_it_needs(python: str, tmp_path: Path) -> None:
    made = make(f"PYTHON={python}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/bin/python")

    assert made.returncode == 2
    assert "trimtab needs Python 3.11 or newer" in made.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 2)], ids=["at home", "in CI"])
def test_make_goes_on_without_a_model_that_cannot_be_had(ci: str, code: int, tmp_path: Path) -> None:
    """torch is large, and not to be had everywhere; the proxy works without."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 1\n")  # an installer without a network
    python.chmod(0o755)
    (venv / ".installed").touch()

    made = make(f"CI={ci}", f"VENV={venv}", f"{venv}/.installed-embeddings")

    assert made.returncode == code
    assert "The embedding model could not be installed" in made.stderr
    assert not (venv / ".installed-embeddings").exists()


def test_make_run_hands_options_on() -> None:
    assert make("-n", "run", "ARGS=--port 9000").stdout.splitlines()[-1] == ".venv/bin/trimtab serve --port 9000"


def test_continuous_integration_runs_what_developers_run() -> None:
    script = ROOT / ".ci" / "run"

    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()


def test_the_command_tells_its_version() -> None:
    told = subprocess.run([sys.executable, "-m", "proxy", "--version"], cwd=ROOT, capture_output=True, check=True)

    assert told.stdout.decode().strip() == f"trimtab {PROJECT['project']['version']}"


# -- the image


DOCKERFILE = (ROOT / "Dockerfile").read_text()


def instructions(name: str) -> list[str]:
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line.removeprefix(f"{name} ").strip() for line in joined.splitlines() if line.startswith(f"{name} ")]


def test_the_image_is_made_of_files_that_are_there_and_sent() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source for line in instructions("COPY") if not line.startswith("--from") for source in shlex.split(line)[:-1]
    }

    assert copied == sent
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_image_runs_the_proxy_as_nobody_in_particular() -> None:
    (user,) = instructions("USER")

    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert instructions("ENTRYPOINT") == ['["trimtab"]']
    assert "trimtab" in PROJECT["project"]["scripts"]
    assert instructions("EXPOSE") == [str(Server().port)]
    assert f":{Server().port}/healthz" in DOCKERFILE


def test_the_image_installs_pinned_releases_alone() -> None:
    """With hashes, but for the embedding model, whose torch differs from place to place."""
    installs = [part for line in instructions("RUN") for part in line.split("&&") if " install " in part]
    pinned = ("--require-hashes", "--no-deps", "-c constraints-embeddings.txt")

    assert installs
    assert [part for part in installs if not any(option in part for option in pinned)] == []


def test_what_the_image_unpacks_beforehand_is_all_that_there_is_to_unpack(tmp_path: Path) -> None:
    (line,) = [line for line in instructions("RUN") if "TIKTOKEN_CACHE_DIR" in line]
    _, option, program, *_ = shlex.split(line)
    assert option == "-c"

    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, option, program], cwd=ROOT, env=environment, check=True)

    assert {file.name for file in tmp_path.iterdir()} == {ranks.cached_as for ranks in tokenizers.RANKS.values()}


def test_the_image_needs_no_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    tokenizers.place(tokenizers.RANKS["cl100k_base"], tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.gettempdir", none)

    assert tokenizers.load.__wrapped__("cl100k_base").encode_ordinary("a b")
