"""Wheel and sdist, installed where there is nothing else, and run without the repository."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from proxy.cli import app  # noqa: F401 - what is installed, through its front door
from tests.shipping.conftest import ROOT, Built, run, tool

pytestmark = pytest.mark.slow
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUEST = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello!"}]}


@pytest.fixture(scope="module")
def trimtab(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(built.wheel, tmp_path_factory.mktemp("wheel"))


def installed(artifact: Path, folder: Path) -> Path:
    """The command in an environment that holds it, what it depends on, and nothing else."""
    uv = tool("uv")
    run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], folder)
    run([uv, "pip", "install", "--quiet", "--python", folder / "venv/bin/python", artifact], folder)
    run([uv, "pip", "check", "--quiet", "--python", folder / "venv/bin/python"], folder)
    return folder / "venv/bin/trimtab"


def test_the_sdist_can_be_installed(built: Built, tmp_path: Path) -> None:
    command = installed(built.sdist, tmp_path)

    assert run([command, "--version"], tmp_path).strip() == f"trimtab {PROJECT['version']}"


def test_the_commands_work_in_an_empty_folder(trimtab: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("defaults: {policy: fifo}\n")
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))

    assert run([trimtab, "--version"], tmp_path).strip() == f"trimtab {PROJECT['version']}"
    assert "name: fifo" in run([trimtab, "check", "config.yaml"], tmp_path)
    assert json.loads(run([trimtab, "count", "request.json"], tmp_path))["tokenizer"] == "o200k_base"
    assert json.loads(run([trimtab, "trim", "request.json"], tmp_path)) == REQUEST


def test_the_demonstration_plays(trimtab: Path, tmp_path: Path) -> None:
    played = run([trimtab, "demo", "--speed", "0", "--exit"], tmp_path, COLUMNS="100")

    assert "cut by" in played


def test_it_serves_with_no_home_and_nothing_writable(trimtab: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir(mode=0o555)
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    with (tmp_path / "log").open("w+b") as log:
        process = subprocess.Popen(
            [trimtab, "serve", "--port", "0"], cwd=bare, env=environment, stdout=subprocess.DEVNULL, stderr=log
        )
        try:
            url = _listening(process, tmp_path / "log")
            with urlopen(f"{url}/healthz") as health:
                assert health.status == 200
            with urlopen(f"{url}/trimtab/") as page:
                assert b"<html" in page.read()
            preview = Request(
                f"{url}/trimtab/preview", json.dumps(REQUEST).encode(), {"content-type": "application/json"}
            )
            with urlopen(preview) as plan:
                assert json.load(plan)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
    assert process.returncode in (0, -signal.SIGTERM), (tmp_path / "log").read_text()
    assert list(bare.iterdir()) == []


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r'"address": ?"(http://127\.0\.0\.1:\d+)"', log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def test_the_wheel_is_the_same_from_the_sdist(built: Built, tmp_path: Path) -> None:
    """Whoever packages it for a distribution gets what is published."""
    source = built.unpacked(tmp_path)
    (again,) = WheelBuilder(str(source)).build(directory=str(tmp_path / "dist"), versions=["standard"])

    with zipfile.ZipFile(built.wheel) as one, zipfile.ZipFile(again) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
        assert [name for name in one.namelist() if one.read(name) != other.read(name)] == []


def test_the_sdist_can_be_tested_and_made_into_an_image(built: Built, tmp_path: Path) -> None:
    source = built.unpacked(tmp_path)
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    wanted = {*sent, "Dockerfile", "Makefile", "tests", "bench", "deploy", "config.example.yaml", "CHANGELOG.md"}

    assert [name for name in sorted(wanted) if not (source / name).exists()] == []
    assert [path for path in source.rglob("*") if path.name in ("node_modules", "__pycache__", ".venv")] == []


def test_the_metadata_names_the_extras(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        name = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = message_from_string(wheel.read(name).decode())

    extras = PROJECT["optional-dependencies"]
    assert metadata.get_all("Provides-Extra") == sorted(extras)
    told = [Requirement(each) for each in metadata.get_all("Requires-Dist") or ()]
    assert {each.name for each in told if each.marker and each.marker.evaluate({"extra": "embeddings"})} >= {
        Requirement(each).name for each in extras["embeddings"]
    }
    assert metadata["License-Expression"] == PROJECT["license"]
