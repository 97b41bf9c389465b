"""The official Python library through the proxy, in long conversations and with nothing changed but the base URL."""

import sys
from importlib import metadata

import pytest

from tests.clients.checks import check
from tests.clients.driving import Bench
from tests.clients.matrix import HERE, PLAIN
from tests.fakes.upstream import FakeUpstream  # noqa: F401 - what the scripted upstream is made of

SCRIPT = HERE / "python" / "openai_chat.py"


@pytest.mark.parametrize("scenario", PLAIN)
def test_it_notices_nothing(bench: Bench, passed, scenario: str) -> None:
    check(bench.run([sys.executable, SCRIPT, scenario]), scenario)
    passed(f"openai {metadata.version('openai')}", scenario)


def test_notes_do_not_disturb_it(bench: Bench) -> None:
    """With the default policy quotes come back as messages that the client never wrote, and never sees."""
    ran = bench.run([sys.executable, SCRIPT, "talk"], path="/hybrid")

    check(ran, "talk")
    assert {record["policy"] for record in ran.cuts} <= {"hybrid", "priority"}
