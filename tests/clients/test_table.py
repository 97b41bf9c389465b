"""The clients that are named are those that are pinned and run."""

import json
import re

import pytest

from tests.clients.matrix import CLIENTS, HERE, NODE, PLAIN, SCENARIOS, Client
from tests.clients.table import BEGIN, END, README, put, table
from tests.fakes.upstream import FakeUpstream  # noqa: F401 - what clients are run against

USED = {"openai_chat.py": (*PLAIN, "served"), **{client.script.name: client.scenarios for client in CLIENTS}}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_pinned_and_has_its_script(client: Client) -> None:
    assert client.script.exists()
    assert re.fullmatch(r"[\d.]+", client.version)


@pytest.mark.parametrize("script", USED)
def test_every_scenario_of_a_script_is_run(script: str) -> None:
    """Each is the name of a function, or a member of the object that the script hands to `run`."""
    folder = NODE if script.endswith(".mjs") else HERE / "python"
    text = (folder / script).read_text().rpartition("run(")[2]

    offered = {
        name for name in (*SCENARIOS, "served") if re.search(rf"^\s*(?:async )?{name}\b|\b{name}=", text, re.MULTILINE)
    }
    assert offered == set(USED[script])


def test_every_scenario_has_its_words() -> None:
    assert {scenario for run in USED.values() for scenario in run} - {"served"} == set(SCENARIOS)


def test_the_lock_of_node_names_no_place() -> None:
    lock = (NODE / "package-lock.json").read_text()

    assert '"resolved"' not in lock
    packages = json.loads(lock)["packages"]
    assert [name for name, each in packages.items() if name and "integrity" not in each] == []


def test_the_table_goes_between_its_marks() -> None:
    made = table({"b 2.0": ["talk"], "A 1.0": ["tools", "talk"]})

    assert made.splitlines()[2:] == ["| A | 1.0 | streaming, tool loop |", "| b | 2.0 | streaming |"]
    text = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert put(text, made) == f"before\n{BEGIN}\n{made}\n{END}\nafter"
    assert put(put(text, made), made) == put(text, made)


def test_the_readme_names_releases_that_are_pinned() -> None:
    rows = re.findall(
        r"^\| (.+) \| ([\d.]+) \| .+ \|$", README.read_text().partition(BEGIN)[2].partition(END)[0], re.MULTILINE
    )
    pinned = {client.title: client.version for client in CLIENTS}

    assert {title: version for title, version in rows if title != "openai"} in ({}, pinned)
