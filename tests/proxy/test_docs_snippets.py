"""Every snippet of README and documentation: configurations are read, commands run or parsed, Python compiled."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from proxy import config as configs
from proxy.app import create_app
from proxy.audit.store import AuditStore
from proxy.cli import app
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import body, dialogue
from tests.proxy.records import record

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "deploy" / "README.md",
]
_FENCE = re.compile(
    r"^ *```(?P<kind>[a-z]+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)

ELSEWHERE = {"docker", "kubectl", "kustomize", "openssl", "git", "apt-get", "source"}  # parsed, not run
NEVER_ENDING = {"serve", "demo"}


@dataclass(frozen=True)
class Snippet:
    page: str
    number: int
    kind: str
    title: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page}-{self.number}"


def snippets(*kinds: str) -> list[pytest.param]:
    found = []
    for page in PAGES:
        for number, match in enumerate(_FENCE.finditer(page.read_text())):
            text = match["text"]
            snippet = Snippet(str(page.relative_to(ROOT)), number, match["kind"], match["title"] or "", text)
            if snippet.kind in kinds:
                found.append(pytest.param(snippet, id=snippet.id))
    return found


def test_every_snippet_says_what_it_is() -> None:
    kinds = {"yaml", "console", "python", "toml", "json", "text", "mermaid"}
    for page in PAGES:
        text = page.read_text()
        assert text.count("```") == 2 * len(list(_FENCE.finditer(text))), page
        assert {match["kind"] for match in _FENCE.finditer(text)} <= kinds, page


@pytest.mark.parametrize("snippet", snippets("yaml"))
def test_configurations_are_valid(snippet: Snippet) -> None:
    if snippet.title and not snippet.title.startswith("trimtab"):
        assert yaml.safe_load(snippet.text), "of another program"
        return
    text = snippet.text.replace("short_answers, tool_bonus: 500", "fifo")  # a policy that is written on the page
    if "\nupstream: " not in text and re.search(r"^upstreams:", text, re.MULTILINE) is None:
        names = set(re.findall(r"\bupstream: (\w+)", text))
        text += (
            "".join(["\nupstreams:", *(f"\n  {name}: {{base_url: 'http://a'}}" for name in sorted(names))])
            if names
            else ""
        )

    assert configs.loads(text).routes


@pytest.mark.parametrize("snippet", snippets("toml", "json"))
def test_files_of_other_formats_can_be_read(snippet: Snippet) -> None:
    """JSON may be several values one after the other, with `[...]` where a list is left out."""
    if snippet.kind == "toml":
        assert tomllib.loads(snippet.text)
        return
    rest, found = snippet.text.replace("[...]", "[]").strip(), 0
    while rest:
        _, end = json.JSONDecoder().raw_decode(rest)
        rest, found = rest[end:].strip(), found + 1
    assert found


# -- commands


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command, continued lines joined, without what is piped, redirected or commented."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = line.strip()
        if not line.startswith("$ "):
            continue
        words = shlex.split(line.removeprefix("$ "), comments=True)
        end = next((at for at, word in enumerate(words) if word in ("|", ">", "&&", "2>")), len(words))
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words, end = words[1:], end - 1
        if words[:end]:
            yield words[:end]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that commands in the documentation speak of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.json").write_bytes(body(dialogue(30)))
    (tmp_path / "requests.jsonl").write_bytes(body(dialogue(3)) + b"\n" + body(dialogue(4)) + b"\n")
    store = AuditStore(tmp_path / "audit.db")
    store.open()
    store.put({**record(1), "audit_id": "5f1c000000000000"})
    store.close()
    settings = f"audit: {{store: 'sqlite:///{tmp_path}/audit.db'}}\nstate: 'sqlite:///{tmp_path}/state.db'\n"
    for name in ("my.yaml", "trimtab.yaml", "config.yaml"):
        (tmp_path / name).write_text(settings)
    (tmp_path / "broken.yaml").write_text("server: {prot: 1}\nroutes: [{name: a, thresholds: {warn: 0.9}}]\n")
    return tmp_path


@pytest.mark.parametrize("snippet", snippets("console"))
def test_commands_run_or_can_be_parsed(snippet: Snippet, desk: Path) -> None:
    found = list(commands(snippet.text))
    assert found or not re.search(r"^\s*\$ ", snippet.text, re.MULTILINE)
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *arguments in found:
        match Path(program).name:
            case "trimtab":
                _trimtab(arguments)
            case "make":
                assert {word for word in arguments if "=" not in word} <= targets, arguments
            case "python" | "python3":
                assert arguments[0] == "-m"
                assert arguments[1] in ("venv", "pip") or find_spec(arguments[1]) is not None, arguments
            case "pip":
                assert arguments[0] == "install"
            case "curl":
                (url,) = [word for word in arguments if "127.0.0.1" in word or "$OPENAI_BASE_URL" in word]
                assert re.search(r"/v1/(chat/completions|models)|/trimtab/|/metrics|/healthz|BASE_URL/chat", url), url
            case "export":
                assert re.fullmatch(r"[A-Z_]+=.*", arguments[0])
            case name:
                assert name in ELSEWHERE or name in ("cd", "(cd"), f"{name}: run it here, or list it"


def _trimtab(arguments: list[str]) -> None:
    """Run a command that ends by itself; parse the others."""
    endless = not NEVER_ENDING.isdisjoint(arguments) or {"-f", "--follow"} & set(arguments)
    if endless or not arguments:
        command, name = typer.main.get_command(app), "trimtab"
        while arguments and arguments[0] in getattr(command, "commands", {}):
            name, *arguments = arguments
            command = command.commands[name]  # type: ignore[attr-defined]
        command.make_context(name, list(arguments), resilient_parsing=not arguments)
        return
    result = CliRunner().invoke(app, arguments)
    expected = 1 if "broken.yaml" in arguments else 0
    assert result.exit_code == expected, (arguments, result.output, result.exception)


def test_what_a_mistake_looks_like_is_what_is_printed(desk: Path) -> None:
    """The output under `trimtab check` in the README is the command's own."""
    page = (ROOT / "README.md").read_text() + (ROOT / "docs" / "troubleshooting.md").read_text()
    shown = re.findall(r"^trimtab: (.*)$", page, re.MULTILINE)
    told = subprocess.run(
        [sys.executable, "-m", "proxy", "check", str(desk / "broken.yaml")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stderr.splitlines()  # fmt: skip

    assert [line for line in shown if f"trimtab: {line}" not in told] == []


# -- Python


@pytest.mark.parametrize("snippet", snippets("python"))
def test_python_compiles(snippet: Snippet) -> None:
    compile(snippet.text, snippet.id, "exec")


async def test_the_readmes_client_gets_its_answer_through_the_proxy(
    upstream: FakeUpstream, serve: Callable[..., Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official client, with nothing but the variable set, as the README has it."""
    settings = f"upstreams: {{fake: {{base_url: '{upstream.url}/v1'}}}}\naudit: {{path: /dev/null}}"
    url = await serve(create_app(configs.loads(settings), {}))
    (code,) = [snippet.values[0].text for snippet in snippets("python") if snippet.values[0].page == "README.md"]
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    await asyncio.to_thread(exec, code, {})

    (exchange,) = upstream.exchanges
    assert exchange.target == b"/v1/chat/completions"
    assert exchange.header("authorization") == b"Bearer sk-test"
    assert exchange.json["model"] == "gpt-4o"


def test_a_policy_written_by_the_page_alone_is_known_everywhere(tmp_path: Path, desk: Path) -> None:
    """One file and an entry point: in `check`, in `trim`, in the benches' list, and true to its promises."""
    page = (ROOT / "docs" / "writing-a-policy.md").read_text()
    files = {match["title"]: match["text"] for match in _FENCE.finditer(page) if match["kind"] == "python"}
    project = tomllib.loads(next(m["text"] for m in _FENCE.finditer(page) if m["title"] == "pyproject.toml"))["project"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]["trimtab.policies"]
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[trimtab.policies]", *lines, ""]))
    chosen = next(m["text"] for m in _FENCE.finditer(page) if m["kind"] == "yaml")
    (tmp_path / "own.yaml").write_text(chosen)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    checked = run("proxy", "check", str(tmp_path / "own.yaml"))
    trimmed = run(
        "proxy", "trim", str(desk / "request.json"), "--config", str(tmp_path / "own.yaml"), "--window", "1500"
    )
    tested = run("pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path / "test_short_answers.py"))

    assert "name: short_answers" in checked
    assert "tool_bonus: 500" in checked
    assert '"policy":"short_answers"' in trimmed
    assert "tokens long" in trimmed
    assert "1 passed" in tested


@pytest.mark.parametrize("wrong", ["serve --prot 1", "serve --port x", "trim no-such.json", "audit --store no.db"])
def test_a_command_that_does_not_exist_so_is_noticed(wrong: str, desk: Path) -> None:
    with pytest.raises(Exception, match=r"."):  # typer's own kinds of errors, or the exit code
        _trimtab(wrong.split())
