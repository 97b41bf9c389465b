"""The soak and its relatives, for a few seconds: whole, equal streams, and nothing left behind."""

import pytest

from bench import aborts, slow_streams, soak
from bench.served import Memory, Vitals
from bench.streams import FAULTS, Got, Stream, judge


async def test_streams_stay_whole_and_nothing_stays_open_among_faults() -> None:
    report = await soak.soak(4, 16, faulty=0.3, gap_s=0.005)

    assert report.wrong == {}
    assert report.requests > 50
    assert report.faulted > 10
    assert report.left_open == 0
    assert report.before is not None
    assert report.after is not None
    assert report.after.requests == 0
    assert report.after.tasks <= report.before.tasks + 1
    assert report.after.fds <= report.before.fds + 16, "idle connections to the upstream are kept for a while"
    assert report.overfull() == []
    assert {"messages", "requests", "decisions", "state", "plans"} <= set(report.after.memories)
    assert report.after.memories["decisions"].held > report.before.memories["decisions"].held
    assert any(line.startswith("  decisions ") for line in soak.told(report))


async def test_the_upstream_hears_of_clients_that_leave() -> None:
    report = await aborts.measure(12, at_once=12)

    assert report.heard > 3
    assert report.slowest_s < 5
    assert (report.held, report.left_open) == (0, 0)
    assert report.after.tasks <= report.before.tasks + 1


async def test_slow_streams_are_measured_with_the_proxy_and_without_it() -> None:
    report = await slow_streams.measure(30, 1.0, 0.1)

    assert report.streams == 30
    assert report.through.chunks == report.direct.chunks == 300
    assert 0 < report.direct.p50 <= report.direct.p99
    assert report.tasks_left <= 1


def test_a_wrong_answer_is_noticed() -> None:
    whole = Stream(seed=1, chunks=5)
    assert judge(whole, Got(200, whole.body, True)) is None
    assert judge(whole, Got(200, whole.body[:-1], True)) is not None
    assert judge(whole, Got(200, whole.body, False)) is not None
    for fault in FAULTS:
        stream = Stream(seed=1, chunks=5, fault=fault)
        assert judge(stream, Got(200, b"something else", True)) is not None


def ran(*rss_mb: float, held: float = 1.0) -> soak.Report:
    """A report of a soak in which the process had so much memory, at times that are equally far apart."""
    return soak.Report(samples=[Vitals(rss, 9, 4, 0, {"plans": Memory(held, 2.0)}) for rss in rss_mb])


@pytest.mark.parametrize(
    ("rss_mb", "grown"),
    [
        pytest.param([100.0] * 50, False, id="flat"),
        pytest.param([100.0] * 10 + [300.0] * 40, False, id="filled in the first fifth"),
        pytest.param([300.0] * 40 + [310.0] * 10, False, id="10 MB more"),
        pytest.param([300.0] * 40 + [310.1] * 10, True, id="more than 10 MB more"),
        pytest.param([900.0] * 40 + [918.0] * 10, False, id="2 % more of much"),
        pytest.param([900.0] * 40 + [918.1] * 10, True, id="more than 2 % of much"),
        pytest.param([300.0 + n for n in range(50)], True, id="slowly, all the time"),
        pytest.param([300.0] * 20 + [900.0] + [300.0] * 29, False, id="a moment's peak"),
        pytest.param([300.0, 300.0, 900.0], True, id="few samples"),
        pytest.param([300.0, 900.0], False, id="too few to tell"),
    ],
)
def test_memory_that_grows_is_noticed(rss_mb: list[float], grown: bool) -> None:
    assert ran(*rss_mb).grown() is grown


def test_a_memory_over_its_bound_is_noticed() -> None:
    report = ran(1.0, 1.0, held=2.0)
    assert report.overfull() == []
    report.samples += ran(1.0, held=2.1).samples + ran(1.0).samples
    assert report.overfull() == ["plans"]
