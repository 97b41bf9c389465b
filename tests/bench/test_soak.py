"""The soak and its relatives, for a few seconds: whole, equal streams, and nothing left behind."""

from bench import aborts, slow_streams, soak
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
