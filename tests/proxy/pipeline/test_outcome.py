import pytest

from proxy.pipeline.outcome import Stages


def test_time_between_stages_is_spent_too() -> None:
    now = [5.0]
    stages = Stages(lambda: now[0])
    now[0] = 5.25
    with stages.stage("parse"):
        now[0] = 6.0
    now[0] = 7.0

    assert stages.spent_s == pytest.approx(2.0)
    assert stages.report() == {"parse": pytest.approx(750.0), "total": pytest.approx(750.0)}
