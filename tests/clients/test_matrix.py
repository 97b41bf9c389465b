"""Other clients through the proxy, each in an environment of its own: `make clients`."""

import shutil

import pytest

from tests.clients.checks import check
from tests.clients.driving import Bench
from tests.clients.matrix import CLIENTS, Client
from tests.fakes.upstream import FakeUpstream  # noqa: F401 - what the scripted upstream is made of

CASES = [
    pytest.param(client, scenario, id=f"{client.name}-{scenario}")
    for client in CLIENTS
    for scenario in client.scenarios
]


@pytest.mark.clients
@pytest.mark.parametrize(("client", "scenario"), CASES)
def test_it_notices_nothing(bench: Bench, passed, tmp_path, client: Client, scenario: str) -> None:
    if not client.ready or (client.node and shutil.which("node") is None):
        pytest.skip(f"{client.title} is not installed here: make clients")

    ran = bench.run([client.interpreter, client.script, scenario], path=client.path, folder=tmp_path)

    check(ran, scenario, client)
    passed(f"{client.title} {client.version}", scenario)
