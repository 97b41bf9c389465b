"""The values of several processes on one page, as prometheus-client keeps them in a folder."""

import os
import subprocess
import sys
from pathlib import Path

from proxy.metrics import Metrics
from proxy.metrics.exposition import Exposition
from tests.proxy.test_metrics import Figures

ROOT = Path(__file__).parents[3]

WORKER = """
import sys
from proxy.metrics import Metrics
from proxy.pipeline.outcome import Outcome, Stages
from proxy.upstream.relay import End
from proxy.route import Route
from policies import registry
told = Metrics(routes=["r"], policies=["fifo"])
open_ = told.gauge("trimtab_streams_open", "Streams.", mode="livesum")
open_.inc(int(sys.argv[1]))
for _ in range(int(sys.argv[1])):
    route = Route(name="r", upstream="u", policy=registry.create("fifo", {}))
    told.turn(Outcome(route=route, body=b"", audit_id="a", stages=Stages(lambda: 0.0)), End.EOF, None, 200)
print("counted", flush=True)
sys.stdin.read()
"""


def worker(folder: Path, turns: int) -> subprocess.Popen[str]:
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    started = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(turns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=ROOT,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "counted\n"
    return started


def test_workers_add_up_and_the_dead_leave_what_they_counted(tmp_path: Path) -> None:
    page = Exposition(Metrics(routes=[], policies=[]).registry, str(tmp_path))
    one, other = worker(tmp_path, 3), worker(tmp_path, 4)

    both = Figures(page.render().body.decode())
    one.kill()
    one.wait()
    after = Figures(page.render().body.decode())
    other.kill()
    other.wait()
    none = Figures(page.render().body.decode())

    totals = [each("trimtab_requests_total", route="r", action="pass", status="2xx") for each in (both, after, none)]
    assert totals == [7, 7, 7]
    assert [each("trimtab_streams_open") for each in (both, after, none)] == [7, 4, 0]
    processes = [{each["pid"] for each in of.named("process_cpu_seconds_total")} for of in (both, after, none)]
    assert processes == [{str(one.pid), str(other.pid)}, {str(other.pid)}, set()]
    for each in (one, other):
        assert each.stdin is not None
        assert each.stdout is not None
        each.stdin.close()
        each.stdout.close()
