"""Known vulnerabilities of what is locked: the real tool, asking a service on this machine."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.shipping.conftest import tool
from tools import audit

pytestmark = pytest.mark.slow
BAD = ("jinja2", "3.1.5")
ADVISORY = {
    "id": "EXAMPLE-1",
    "summary": "an example",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": BAD[0]},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.6"}]}],
        }
    ],
}


class Service(BaseHTTPRequestHandler):
    """OSV's API, of one advisory."""

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {"vulns": [ADVISORY]} if (query["package"]["name"], query["version"]) == BAD else {}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the console."""


@pytest.fixture
def service() -> Iterator[list[str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield ["-s", "osv", "--osv-url", f"http://127.0.0.1:{server.server_port}/v1/query"]
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PIP_AUDIT", tool("pip-audit"))


def test_every_lock_can_be_audited(service: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert audit.main(service) == 0
    assert "none with a known vulnerability" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("explained", "status", "said"),
    [({}, 1, "EXAMPLE-1"), ({"EXAMPLE-1": "never called"}, 0, "Explained: EXAMPLE-1: never called")],
    ids=["found", "explained"],
)
def test_a_vulnerable_pin_of_another_system_is_found(
    service: list[str],
    explained: dict[str, str],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"{'=='.join(BAD)} ; sys_platform == 'plan9' \\\n    --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(audit, "HASHED", (lock,))

    assert audit.main(service, explained) == status
    assert said in capfd.readouterr().out


def test_a_service_out_of_reach_is_told_and_is_no_clean_audit(capfd: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["-s", "osv", "--osv-url", "http://127.0.0.1:1/v1/query"]) == 2
    assert "Not audited, so nothing is known" in capfd.readouterr().err
