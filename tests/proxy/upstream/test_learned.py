from typing import Any

import pytest

from proxy.tokens.calibration import start
from proxy.tokens.calibration_codec import decode
from proxy.tokens.counts import Counts
from proxy.tokens.ratios import Ratios
from proxy.upstream.learned import Calibrations, Key, Learned

KEY = Key("main", "m-1", "ab12")
PRIOR = Ratios(1.15, 1.45, 1.3, 1.4)
PROMPT = Counts(latin=4000, code=500, fixed=100, messages=20)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def learned(**options: Any) -> tuple[Learned, Clock]:
    clock = Clock()
    return Learned(clock=clock, **options), clock


def test_an_error_teaches_a_window_for_an_hour() -> None:
    windows, clock = learned()
    assert windows.window(KEY) is None

    assert windows.note(KEY, 8192)

    clock.now = 3599.9
    assert windows.window(KEY) == 8192
    clock.now = 3600.0
    assert windows.window(KEY) is None
    assert windows.window(KEY, 128_000) == 128_000


@pytest.mark.parametrize(
    ("limit", "known", "window"),
    [(8192, None, 8192), (8192, 128_000, 8192), (200_000, 128_000, 128_000), (128_000, 128_000, 128_000)],
    ids=["unknown", "smaller", "larger", "the same"],
)
def test_the_smaller_window_counts(limit: int, known: int | None, window: int) -> None:
    windows, _ = learned()
    windows.note(KEY, limit)

    assert windows.window(KEY, known) == window


def test_the_latest_error_counts() -> None:
    windows, _ = learned()
    windows.note(KEY, 8192)
    windows.note(KEY, 16_384)

    assert windows.window(KEY) == 16_384


@pytest.mark.parametrize(
    ("limit", "taken"),
    [(-1, False), (0, False), (255, False), (256, True), (100_000_000, True), (100_000_001, False)],
)
def test_a_limit_that_no_model_has_is_not_taken(limit: int, taken: bool) -> None:
    windows, _ = learned()

    assert windows.note(KEY, limit) is taken
    assert windows.window(KEY, 128_000) == (limit if taken and limit < 128_000 else 128_000)


@pytest.mark.parametrize(
    "other",
    [
        KEY._replace(route="other"),
        KEY._replace(model="m-2"),
        KEY._replace(credential="cd34"),
        KEY._replace(credential=None),
    ],
    ids=["route", "model", "credential", "no credential"],
)
def test_nobody_learns_from_anothers_errors(other: Key) -> None:
    windows, _ = learned()
    windows.note(KEY, 8192)

    assert windows.window(other, 128_000) == 128_000


def test_the_number_of_windows_is_bounded() -> None:
    windows, _ = learned(capacity=10)
    for i in range(1000):
        windows.note(KEY._replace(credential=str(i)), 8192)

    assert len(windows) == 10
    assert windows.window(KEY._replace(credential="999")) == 8192


def test_two_prompts_cut_alike_teach_a_window() -> None:
    windows, _ = learned()

    assert not windows.note_truncated(KEY, 4000)
    assert windows.window(KEY, 128_000) == 128_000
    assert windows.note_truncated(KEY, 4096)
    assert windows.window(KEY, 128_000) == 4096


def test_prompts_cut_to_different_sizes_teach_none() -> None:
    windows, _ = learned()
    for actual in (4000, 9000, 2000, 7000):
        assert not windows.note_truncated(KEY, actual)

    assert windows.window(KEY) is None


def test_a_cut_long_ago_is_not_held_against_it() -> None:
    windows, clock = learned()
    windows.note_truncated(KEY, 4000)
    clock.now = 3600

    assert not windows.note_truncated(KEY, 4000)


def test_a_prompt_that_went_over_a_limit_disproves_it() -> None:
    windows, _ = learned()
    windows.note(KEY, 8192)
    windows.note_accepted(KEY, 8000)
    assert windows.window(KEY) == 8192

    windows.note_accepted(KEY, 8193)

    assert windows.window(KEY) is None


def test_a_limit_is_not_learned_over_which_a_prompt_was_taken() -> None:
    windows, clock = learned()
    windows.note_accepted(KEY, 50_000)
    windows.note_accepted(KEY, 600)

    assert not windows.note(KEY, 2013)
    assert windows.window(KEY, 128_000) == 128_000
    assert windows.note(KEY, 64_000)
    assert windows.note(KEY, 49_000), "counts of one prompt differ by a little"
    assert windows.note(KEY._replace(model="m-2"), 2013)
    windows.note_accepted(KEY, 10**12)
    assert windows.note(KEY, 64_000), "no prompt has so many tokens"

    clock.now = 3600
    assert windows.note(KEY, 2013), "it may be another model by now"


def test_usage_makes_a_models_estimates_near() -> None:
    known = Calibrations()
    for i in range(6):
        known.observe(KEY, PRIOR, PROMPT, 6000, digest=bytes([i]))

    assert known.get(KEY, PRIOR).tokens(PROMPT) == pytest.approx(6000, rel=0.02)
    assert known.get(KEY._replace(model="m-2"), PRIOR) == start(PRIOR)


def test_a_conversation_finds_its_last_request() -> None:
    known = Calibrations()
    known.observe(KEY, PRIOR, PROMPT, 6000, digest=b"2")
    known.observe(KEY, PRIOR, PROMPT, 7000, digest=b"4")

    past = known.past(KEY, [b"1", b"2", b"3", b"4", b"5"])
    branch = known.past(KEY, [b"1", b"2", b"x"])

    assert past is not None
    assert branch is not None
    assert (past.actual, branch.actual) == (7000, 6000)
    assert known.past(KEY, [b"1"]) is None
    assert known.past(KEY._replace(credential=None), [b"2"]) is None


def test_a_cut_prompt_is_reported_and_leaves_everything_as_it_was() -> None:
    known = Calibrations()
    known.observe(KEY, PRIOR, PROMPT, 6000, digest=b"1")
    before = known.get(KEY, PRIOR)
    long = PROMPT._replace(latin=50_000)

    assert known.observe(KEY, PRIOR, long, 4096, digest=b"2")

    assert known.get(KEY, PRIOR).weights == before.weights
    assert known.past(KEY, [b"1", b"2"]) == known.past(KEY, [b"1"])


@pytest.mark.parametrize("actual", [0, -1, 10**12])
def test_a_usage_that_no_prompt_has_is_no_cut_and_no_past(actual: int) -> None:
    known = Calibrations()

    assert not known.observe(KEY, PRIOR, PROMPT, actual, digest=b"1")
    assert known.past(KEY, [b"1"]) is None
    assert known.get(KEY, PRIOR) == start(PRIOR)


def test_what_is_not_used_is_forgotten() -> None:
    clock = Clock()
    known = Calibrations(ttl_s=100, clock=clock)
    known.observe(KEY, PRIOR, PROMPT, 6000, digest=b"1")
    clock.now = 100

    assert known.get(KEY, PRIOR) == start(PRIOR)
    assert known.past(KEY, [b"1"]) is None


def test_calibrations_and_pasts_are_bounded() -> None:
    known = Calibrations(capacity=3, pasts=5)
    for i in range(50):
        known.observe(KEY._replace(model=str(i)), PRIOR, PROMPT, 6000, digest=bytes([i]))

    assert len(known) == 3
    found = [known.past(KEY._replace(model=str(i)), [bytes([i])]) for i in range(50)]
    assert sum(past is not None for past in found) == 5


def test_a_store_keeps_it_for_another_worker() -> None:
    first, second = Calibrations(), Calibrations()
    assert first.dump(KEY) is None
    for i in range(6):
        first.observe(KEY, PRIOR, PROMPT, 6000, digest=bytes([i]))
    data = first.dump(KEY)
    assert data is not None
    assert decode(data) == first.get(KEY, PRIOR)

    assert second.load(KEY, data)

    assert second.get(KEY, PRIOR) == first.get(KEY, PRIOR)
    assert not second.load(KEY, data)
    assert not second.load(KEY, b"\x00garbage")


def test_what_says_less_is_not_taken_over() -> None:
    little, much = Calibrations(), Calibrations()
    little.observe(KEY, PRIOR, PROMPT, 6000, digest=b"1")
    for i in range(6):
        much.observe(KEY, PRIOR, PROMPT, 7000, digest=bytes([i]))
    before = much.get(KEY, PRIOR)
    data = little.dump(KEY)
    assert data is not None

    assert not much.load(KEY, data)

    assert much.get(KEY, PRIOR) == before
