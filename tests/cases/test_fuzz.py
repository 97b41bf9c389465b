"""What fuzzing found once is right now, and a little of it is done each time."""

from pathlib import Path

import pytest

from bench import fuzz
from bench.fuzz_bodies import Case, case
from bench.fuzz_front import front
from tests.fakes.upstream import FakeUpstream  # noqa: F401 - the chat path is gone through from its front

KEPT = sorted(fuzz.KEPT.glob("*.json"))


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
async def test_what_failed_once_does_not_fail_again(file: Path) -> None:
    async with front() as chat:
        assert await fuzz.confirmed(chat, fuzz.kept(file)) is None


async def test_bodies_grown_from_valid_ones_do_no_harm() -> None:
    found = await fuzz.bodies(0, 250)

    assert found.failures == {}
    assert found.bodies == 250
    assert found.counts["pass"] > 50
    assert found.counts["trimmed"] > 20


def test_streams_read_the_same_however_they_are_split() -> None:
    assert [problem for seed in range(25) if (problem := fuzz.splits(seed)) is not None] == []


def test_cases_are_the_same_each_time() -> None:
    assert [case(seed) for seed in range(50)] == [case(seed) for seed in range(50)]
    assert case(1) != case(2)


async def test_a_failing_case_is_shrunk_to_what_fails(tmp_path: Path) -> None:
    async def fails(made: Case) -> str | None:
        return "has it" if b"needle" in made.body else None

    start = Case(
        route=1, body=b'{"messages": [' + b'{"role": "user"}, ' * 50 + b'{"x": "needle"}]}', headers=(("a", "b"),)
    )

    small = await fuzz.shrunk(start, fails, "has it")

    assert small == Case(route=1, body=b"needle")
    assert fuzz.kept(fuzz.keep("has it", small, tmp_path)) == small
