"""What `trimtab check` tells."""

import re
from pathlib import Path

import pytest

from proxy import config
from proxy.config.check import check
from proxy.errors import ConfigError

README = (Path(__file__).parents[3] / "README.md").read_text()
FILE = """
state: "redis://me:hunter2@cache:6379/0"
audit: {path: ["-", audit.jsonl]}
upstreams:
  a: {base_url: "http://a/v1", api_key_env: A_KEY}
defaults: {mode: "off", policy: fifo}
routes:
  - {name: first, match: {path: /a/, header: {X-Team: "on"}}, pin: {text: ["#[0-9]+: é"]}}
  - {name: second}
  - {name: third, policy: {name: priority, decay: 0.5}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    return path


def test_the_effective_configuration_reads_back_as_the_same(file: Path) -> None:
    effective = check(file, {}).effective

    expected = config.loads(FILE.replace("me:hunter2", "***"))
    assert config.loads(effective) == expected


def test_it_shows_no_password(file: Path) -> None:
    effective = check(file, {}).effective

    assert "redis://***@cache:6379/0" in effective
    assert "hunter2" not in effective


def test_a_route_begins_with_its_name(file: Path) -> None:
    assert "- name: first\n  match:\n    path: /a\n" in check(file, {}).effective


def test_what_stops_nothing_is_a_warning(file: Path) -> None:
    assert check(file, {"A_KEY": "x"}).warnings == (
        "routes[2]: never reached, since routes[1] matches everything; move it up or give routes[1] a match",
    )
    assert check(file, {}).warnings[1:] == (
        "upstreams.a.api_key_env: must name an environment variable that is set, and A_KEY is not",
    )


def test_a_broken_file_is_an_error(file: Path) -> None:
    file.write_text("server: {port: x}")

    with pytest.raises(ConfigError, match=r"server\.port"):
        check(file, {})


def test_the_examples_in_the_readme_are_true(file: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    told = re.findall(r"^trimtab: (.*)$", README, re.MULTILINE)
    file.write_text(example)

    assert [route.name for route in config.loads(check(file, {}).effective).routes] == ["support", "rest"]
    file.write_text("server: {prot: 80}\nroutes: [{name: a, thresholds: {warn: 0.9}}]")
    with pytest.raises(ConfigError) as caught:
        check(file, {})
    assert list(caught.value.problems) == told


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ("server: {workers: 2}\nstate: sqlite:///s.db", True),
        ("server: {workers: 2}\nstate: sqlite:///s.db\naudit: {store: 'sqlite:///a.db'}", False),
        ("server: {workers: 2}\nstate: sqlite:///s.db\naudit: {store: null}", False),
        ("server: {workers: 1}", False),
    ],
)
def test_workers_that_keep_decisions_apart_are_warned_of(file: Path, settings: str, warned: bool) -> None:
    file.write_text(settings)

    assert any("audit.store: memory:// is each worker's own" in each for each in check(file, {}).warnings) is warned
