"""The documentation says what the code does: made pages are up to date, tables complete, links lead somewhere."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies import registry
from policies.types import Need, reads_prompt
from proxy.audit import Audit
from proxy.config.schema import Config
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import body, dialogue, user, words
from tests.proxy.proxied import Records, Start, post
from tools import reference
from tools.commented import comments
from tools.settings import settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def table(page: str, heading: str) -> dict[str, str]:
    """The first cells of the first table below a heading, those with several names apart, and the second cells."""
    text = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert rows, f"{page} has no table below {heading!r}"
    return {name: row[1].strip() for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def test_pages_made_from_the_code_are_those_that_it_makes() -> None:
    made = reference.pages()

    assert {name: (DOCS / name).read_text() for name in made} == made, "run `make docs`"


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    settings_file = tmp_path / "zensical.toml"
    settings_file.write_text((ROOT / "zensical.toml").read_text().replace("build/site", "site"))
    shutil.copytree(DOCS, tmp_path / "docs")

    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--config-file", settings_file],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert built.returncode == 0, built.stdout + built.stderr
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert {path.name for path in (tmp_path / "site").iterdir() if path.is_dir()} == {
        *pages,
        "assets",
        *(path.name for path in DOCS.iterdir() if path.is_dir()),
    }
    html = (tmp_path / "site" / "index.html").read_text()
    fetched = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?://[^"]+)"', html)
    assert fetched == [], "the pages need nothing from elsewhere"


def test_every_page_is_in_the_menu() -> None:
    assert set(re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text())) == {
        path.name for path in DOCS.glob("*.md")
    }


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "deploy/README.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), target


# -- settings


def test_every_setting_has_words_and_its_default() -> None:
    said = comments((ROOT / "config.example.yaml").read_text())
    known = list(settings())

    assert len(known) > 80
    assert [each.path for each in known if not said.get(each.path.replace(".NAME.", ".openai."))] == []
    plain = Config.model_validate_json(
        '{"upstreams": {"a": {"base_url": "http://a"}}, "routes": [{"name": "b", "upstream": "a"}]}'
    )
    given = plain.model_dump(mode="json")
    for each in known:
        if each.default is not None and "[]" not in each.path and "NAME" not in each.path and each.type != "policy":
            value: Any = given
            for step in each.path.split("."):
                value = value[step]
            assert yaml.safe_load(each.default) in (value, [value]), each.path


def test_comments_are_found_where_they_stand() -> None:
    found = comments(
        "# All\n# of it.\na:\n  b: 1  # one\n         # goes on\n  c: 2\nlist:\n  - d: 3  # three\n    e: 4  # four\n"
    )

    assert found == {
        "a": "All of it.",
        "a.b": "one goes on",
        "a.c": "",
        "list": "",
        "list[].d": "three",
        "list[].e": "four",
    }


# -- policies


def test_the_table_of_policies_says_what_each_looks_at() -> None:
    rows = [
        line.strip("|").split(" | ") for line in (DOCS / "policies.md").read_text().splitlines() if line[:3] == "| `"
    ]
    told = {name: [cell.strip() for cell in row[1:4]] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    dense = {Need.SIMILARITY, Need.VECTORS}
    made = {name: registry.create(name) for name in registry.names()}

    yes = {True: "yes", False: "no"}
    assert told == {
        name: [yes[reads_prompt(policy)], yes[bool(policy.needs & dense)], yes[not reads_prompt(policy)]]
        for name, policy in made.items()
    }


# -- HTTP


def codes() -> Iterator[tuple[str, int | None]]:
    """The codes of the errors that the proxy makes itself, with their status where it stands beside them."""
    makers = {"ClientError", "UpstreamError", "error_response", "_refuse"}
    for path in (ROOT / "proxy").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            if (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in makers:
                plain = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
                status = next((value for value in plain if isinstance(value, int)), None)
                yield from ((value, status) for value in plain if isinstance(value, str))
            named = {each.arg: each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)}
            if isinstance(named.get("code"), str) and isinstance(named.get("status"), int):
                yield str(named["code"]), int(named["status"])


NEVER_ANSWERED = {"upstream_refused"}  # an embedder's or a summariser's: done without


def test_every_error_code_is_told_with_its_status() -> None:
    told = table("http.md", "Errors")
    made = dict(sorted(codes(), key=lambda each: each[1] or 0))

    assert set(told) == set(made) - NEVER_ANSWERED
    assert {code: told[code] for code, status in made.items() if status and code in told} == {
        code: str(status) for code, status in made.items() if status and code in told
    }


def test_every_request_header_that_is_read_is_told() -> None:
    source = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    read = set(re.findall(r'b"(x-trimtab-[a-z]+)"', source))

    assert set(table("http.md", "Request headers")) == read


async def test_every_response_header_is_told(start: Start, upstream: FakeUpstream) -> None:
    client = await start("defaults: {window: 900, reserve_output: 0}")
    cut = await post(client, body(dialogue(20)))
    unread = await post(client, b"{]")

    sent = {name for name in (*cut.headers, *unread.headers) if name.startswith("x-trimtab-")}
    told = set(table("http.md", "Response headers"))
    assert sent - told == set()
    assert told - sent == {"x-trimtab-faults"}, "of which there was none"


# -- the audit record


async def test_every_field_of_an_audit_record_is_told(
    start: Start,
    upstream: FakeUpstream,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole: list[dict[str, Any]] = []
    put = Audit.put

    def watched(self: Audit, record: dict[str, Any], *, error: bool = False) -> None:
        whole.append(record)
        put(self, record, error=error)

    monkeypatch.setattr(Audit, "put", watched)
    client = await start(
        f"audit: {{path: '{records.path}', content: true}}\ndefaults: {{window: 900, reserve_output: 0}}"
    )
    marked = [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]
    orphan = [{"role": "tool", "tool_call_id": "nobody's", "content": words(20)}]
    await post(client, body([*dialogue(9)[:-1], *orphan, *marked, *dialogue(9)[1:]]))
    await post(client, body([user("Hello?")]))
    lines = await records.get(2)

    assert set(table("audit.md", "Fields")) == {name for line in lines for name in line}
    assert set(table("audit.md", "Slots")) == {name for record in whole for slot in record["slots"] for name in slot}


# -- traces


def test_every_attribute_of_a_span_is_told() -> None:
    from proxy.telemetry import attributes

    text = (DOCS / "tracing.md").read_text()
    told = set(re.findall(r"`([a-z_]+\.[a-zA-Z_.]+)`", text.partition("| attribute")[2]))
    own = {*attributes._NAMES.values(), *attributes._USAGE.values()}
    own |= {attributes.OPERATION, attributes.PROVIDER, attributes.MODEL, attributes.ROUTE}
    own |= {"gen_ai.response.finish_reasons", "http.request.method", "trimtab.overhead_ms.STAGE"}

    assert told - {"audit.content"} == own
