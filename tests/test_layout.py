"""How the source hangs together: imports go one way, what says that it is pure is so, tests mirror what they test."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for package in ("policies", "proxy") for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

# From the top down: a module imports from its own layer and from those below. What is not listed is as high as what
# it imports; values and pure functions come to lie at the bottom.
LAYERS = (
    ("proxy.__main__", "proxy.cli", "proxy.audit.cli"),
    ("proxy.serving", "proxy.offline", "proxy.config.check"),
    ("proxy.app",),
    ("proxy.config",),
    ("proxy.gateway", "proxy.routes", "proxy.dashboard"),
    ("proxy.pipeline", "proxy.audit", "proxy.upstream.relay", "proxy.upstream.windows"),
    ("proxy.conversations", "proxy.embeddings", "proxy.recall"),
    # What reaches other machines and the disk: embedders and summarisers ask upstreams too.
    ("proxy.upstream", "proxy.stores"),
    ("proxy.wire", "proxy.tokens", "proxy.streaming", "proxy.route", "proxy.matching"),
)
# Handed down as values from here on.
READ_CONFIG = {"proxy.app", "proxy.audit.cli", "proxy.cli", "proxy.config", "proxy.offline", "proxy.serving"} | {
    "proxy.demo.stage"
}
IO = {
    *("asyncio", "concurrent", "logging", "multiprocessing", "signal", "subprocess", "threading"),
    *("glob", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "sys", "tempfile"),
    *("ftplib", "http", "select", "smtplib", "socket", "ssl", "urllib.request", "webbrowser"),
    *("datetime", "secrets", "time", "uuid"),
    *("aiohttp", "anyio", "httpx", "httpx_aiohttp", "openai", "redis", "requests", "starlette", "structlog", "uvicorn"),
}
IO_CALLS = {"breakpoint", "eval", "exec", "input", "open", "print"}
POLICIES_MAY_USE = {"numpy", "pydantic", "pydantic_core", "regex", "sklearn", "threadpoolctl"}
FRONT_DOORS = {"policies.registry", "proxy.app", "proxy.cli", "proxy.gateway", "proxy.pipeline", "proxy.routes"}
# About several modules at once.
ACROSS = {"policies.worked_examples", "shipping.vulnerabilities"}
LONGEST = 350  # lines


def name(path: Path) -> str:
    """The module that a file is."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


TREES = {name(path): ast.parse(path.read_text(), path) for path in SOURCES}


def imported(tree: ast.Module) -> Iterator[str]:
    """Every module that a tree imports, wherever it does; of a package, the part that is meant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in TREES else str(node.module)


@cache
def layer(module: str) -> int:
    """How far from the bottom a module is; -1 for `policies`."""
    if module.split(".")[0] == "policies":
        return -1
    for height, modules in zip(range(len(LAYERS), 0, -1), LAYERS, strict=True):
        if any(module == each or module.startswith(f"{each}.") for each in modules) and module not in PURE:
            return height
    return max((layer(each) for each in imported(TREES[module]) if own(each)), default=0)


PURE = {module for module, tree in TREES.items() if "(pure)" in (ast.get_docstring(tree) or "")}


def own(module: str) -> bool:
    return module.split(".")[0] in ("policies", "proxy")


@pytest.mark.parametrize("module", TREES)
def test_imports_go_one_way(module: str) -> None:
    upwards = [each for each in imported(TREES[module]) if own(each) and layer(each) > layer(module)]

    assert upwards == [], f"{module} is in layer {layer(module)} of {len(LAYERS)}: hand it what it needs, as a value"


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {module: {each for each in imported(tree) if each in TREES} for module, tree in TREES.items()}
    # Under TYPE_CHECKING the protocol and the plan may name each other.
    graph["policies.types"].discard("policies.plan")

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_config_is_read_at_the_top_alone() -> None:
    readers = {
        module for module, tree in TREES.items() if {"proxy.config", "proxy.config.schema"} & set(imported(tree))
    }

    assert {module for module in readers if not module.startswith("proxy.config.")} <= READ_CONFIG


@pytest.mark.parametrize("module", [module for module in TREES if module.startswith("policies.")])
def test_policies_use_nothing_but_values(module: str) -> None:
    used = {each.split(".")[0] for each in imported(TREES[module])}
    others = {top for top in used if not (own(top) or top in POLICIES_MAY_USE or top in sys.stdlib_module_names)}

    assert others == set()
    assert used.isdisjoint({"proxy", "random"})
    assert effects(TREES[module]) == set()


@pytest.mark.parametrize(
    "module", [each for each, tree in TREES.items() if "(pure)" in (ast.get_docstring(tree) or "")]
)
def test_what_says_that_it_is_pure_is(module: str) -> None:
    assert effects(TREES[module]) == set()


def effects(tree: ast.Module) -> set[str]:
    """The ways to the world that a module takes: what it imports and calls."""
    modules = {each for each in imported(tree) if each in IO or each.split(".")[0] in IO}
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return modules | (calls & IO_CALLS)


def test_effects_are_noticed() -> None:
    tree = ast.parse("import os.path\nfrom urllib.request import urlopen\ndef f():\n    import time\n    open('x')")

    assert effects(tree) == {"os.path", "urllib.request", "time", "open"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_enough_to_be_read_at_once(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_test_lies_where_its_subject_does(path: Path) -> None:
    """`tests/proxy/wire/test_splice_notes.py` is about `proxy/wire/splice.py`, or goes through the front door."""
    package = ".".join(path.parent.relative_to(ROOT / "tests").parts)
    if package in ("", "bench", "cases"):  # of the whole, or of what is no part of it
        return
    subject = f"{package}.{path.stem.removeprefix('test_')}"
    mirrored = subject in ACROSS or any(
        subject == module or subject.startswith(f"{module}_") for module in TREES if module != package
    )
    used = set(imported(ast.parse(path.read_text())))

    assert mirrored or any(each in FRONT_DOORS or each.startswith(("fakes.", "tests.fakes.")) for each in used)
