"""What is deployed with, held against the schemas of those who read it."""

import json
import tomllib
from pathlib import Path

import pytest

from proxy.cli import app  # noqa: F401 - what is deployed
from tests.shipping.conftest import ROOT, run, tool
from tests.test_packaging import pins

pytestmark = pytest.mark.slow
KUBERNETES = ROOT / "deploy" / "kubernetes"
NONE_OF_ITS = ("config.yaml", "kustomization.yaml")  # the proxy's own, and kustomize's
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_compose_takes_its_file() -> None:
    run([tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", ROOT / "deploy/compose.yaml"], ROOT)


@pytest.mark.parametrize(
    "manifest",
    [path for path in sorted(KUBERNETES.glob("*.yaml")) if path.name not in NONE_OF_ITS],
    ids=lambda path: path.name,
)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_takes_its_manifests(manifest: Path, version: str) -> None:
    run([tool("kubernetes-validate"), "--strict", "-k", version, manifest], ROOT)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_ones(workflow: Path) -> None:
    run([tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow], ROOT)


def test_the_bill_of_materials_lists_what_is_locked(tmp_path: Path) -> None:
    bill = tmp_path / "bill.json"
    run(
        [
            tool("cyclonedx-py"),
            "requirements",
            "--output-reproducible",
            "--pyproject",
            ROOT / "pyproject.toml",
            "-o",
            bill,
            ROOT / "requirements.lock",
        ],
        ROOT,
    )

    told = json.loads(bill.read_text())
    assert (
        told["metadata"]["component"]["name"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    )
    assert {each["name"]: each["version"] for each in told["components"]} == pins("requirements.lock")
    assert all(each.get("hashes") or each.get("externalReferences") for each in told["components"])
