import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import tokens, wire
from proxy.tokens.calibration import (
    ENOUGH,
    LARGEST,
    MARGIN_MAX,
    MARGIN_MIN,
    RECENT,
    SETTLED,
    SHORTFALLS,
    Calibration,
    Past,
    start,
    upstream_truncated,
)
from proxy.tokens.counts import Counts, of_message, of_settings, total
from proxy.tokens.ratios import Ratios

PRIOR = Ratios(1.15, 1.45, 1.3, 1.4)
PROSE = Counts(latin=4000, code=200, fixed=100, messages=20)
CODE = Counts(latin=1000, code=3000, fixed=100, messages=20)
CHINESE = Counts(latin=100, code=300, cjk=5000, fixed=100, messages=20)
RUSSIAN = Counts(latin=200, code=200, other=3000, fixed=100, messages=20)
AGENT = Counts(latin=2000, code=2000, calls=1500, schemas=3000, fixed=400, messages=30)
KINDS = (PROSE, CODE, CHINESE, RUSSIAN, AGENT)


class Model:
    """An upstream with coefficients of its own: four ratios, calls, schemas, tokens a message."""

    def __init__(self, *weights: float) -> None:
        self.weights = weights

    def __call__(self, counts: Counts) -> int:
        of = (*counts[:6], counts.messages)
        return max(round(sum(w * n for w, n in zip(self.weights, of, strict=True))) + counts.fixed, 1)


REAL = Model(1.05, 1.6, 2.4, 1.9, 0.0, 0.0, -2.0)


def sample(rng: random.Random, kinds: Sequence[Counts] = KINDS) -> Counts:
    """A request of one kind, of a size and a mixture of its own."""
    size = rng.uniform(0.1, 3)
    return Counts(*(round(n * size * rng.uniform(0.7, 1.3)) for n in rng.choice(kinds)))


def learned(model: Model, n: int = 40, seed: int = 1, kinds: Sequence[Counts] = KINDS) -> Calibration:
    rng = random.Random(seed)
    known = start(PRIOR)
    for _ in range(n):
        counts = sample(rng, kinds)
        known = known.observe(counts, model(counts))
    return known


def errors(known: Calibration, model: Model, seed: int = 2) -> list[float]:
    rng = random.Random(seed)
    samples = [sample(rng) for _ in range(100)]
    return sorted(abs(known.tokens(counts) / model(counts) - 1) for counts in samples)


def test_a_model_begins_with_the_ratios_of_its_family() -> None:
    known = start(PRIOR)

    assert known.weights == pytest.approx((1.15, 1.45, 1.3, 1.4, 1.45, 1.45, 0.0))
    assert known.ratios() == Ratios(*known.weights[:4])
    assert known.tokens(PROSE) == pytest.approx(1.15 * 4000 + 1.45 * 200 + 100)
    assert known.margin() == known.margin(Past(PROSE, 1)) == MARGIN_MAX


def test_a_few_requests_of_each_kind_make_the_estimates_near() -> None:
    found = errors(learned(REAL, 15), REAL)

    assert found[50] < 0.05
    assert found[95] < 0.12


@given(
    st.tuples(
        *(st.floats(0.9, 1.3), st.floats(0.9, 2.0), st.floats(0.8, 2.6), st.floats(0.8, 3.0)),
        *(st.floats(0.0, 1.8), st.floats(0.0, 1.8), st.floats(-4, 15)),
    )
)
@settings(max_examples=30, deadline=None)
def test_any_model_is_learned(weights: tuple[float, ...]) -> None:
    model = Model(*weights)
    found = errors(learned(model), model)

    assert found[50] < 0.03
    assert found[95] < 0.08


def test_tools_that_a_template_leaves_out_are_learned_at_once() -> None:
    known = start(PRIOR).observe(AGENT, REAL(AGENT))

    assert known.shortfalls == 0
    assert known.tokens(AGENT) == pytest.approx(REAL(AGENT), rel=0.1)


def test_a_replaced_model_is_learned_anew() -> None:
    newer = Model(1.3, 1.3, 1.8, 1.6, 1.0, 1.0, 3.0)
    rng = random.Random(3)
    known = learned(REAL, 200)
    for _ in range(400):
        counts = sample(rng)
        known = known.observe(counts, newer(counts))

    assert errors(known, newer)[50] < 0.05


def test_underestimates_pull_harder() -> None:
    """Of two requests that disagree, the dearer one counts for more."""
    known = start(Ratios(1.2, 1.0, 1.0, 1.0))
    for _ in range(6):
        known = known.observe(Counts(latin=4000), 4400).observe(Counts(latin=4000), 5200)

    assert 1.2 < known.ratios().latin < 1.3


def test_one_outlier_moves_little() -> None:
    known = learned(REAL)

    after = known.observe(PROSE, 2 * REAL(PROSE))

    assert after.tokens(PROSE) == pytest.approx(known.tokens(PROSE), rel=0.06)
    assert after.seen == known.seen + 1


def test_media_teach_little_about_text() -> None:
    images = Counts(latin=1000, fixed=20_000, messages=10)
    known = learned(REAL)

    after = known.observe(images, 12_000)

    assert after.ratios().latin == pytest.approx(known.ratios().latin, rel=0.03)


def test_a_tiny_request_teaches_little() -> None:
    known = start(PRIOR).observe(Counts(latin=10, messages=1), 40)

    assert known.tokens(PROSE) == pytest.approx(start(PRIOR).tokens(PROSE), rel=0.05)


def test_a_long_conversation_does_not_outweigh_the_others() -> None:
    """Its requests repeat each other, so a hundred of them do not make its ratio everybody's."""
    known = learned(REAL, 60, kinds=(PROSE, CODE))
    past = None
    for size in range(100, 200):
        counts = Counts(latin=40 * size, code=2 * size, fixed=size, messages=size // 5)
        actual = round(1.15 * REAL(counts))
        known = known.observe(counts, actual, past)
        past = Past(counts, actual)

    assert known.tokens(PROSE) == pytest.approx(REAL(PROSE), rel=0.08)


def test_a_conversation_has_a_ratio_of_its_own() -> None:
    known = learned(REAL)
    past = Past(PROSE, round(1.2 * known.tokens(PROSE)))
    grown = PROSE._replace(latin=4100, messages=21)

    assert known.estimate(grown, past) == pytest.approx(1.2 * known.tokens(grown), rel=0.001)
    assert known.estimate(grown) < known.estimate(grown, past)


@pytest.mark.parametrize("margin", [True, False])
def test_the_parts_of_a_request_are_estimated_as_the_whole_is(margin: bool) -> None:
    counter = tokens.counter("a-model-nobody-knows")
    tool = {"type": "function", "function": {"name": "sail", "parameters": {"type": "object"}}}
    call = {"id": "c", "type": "function", "function": {"name": "sail", "arguments": '{"to": "the harbour"}'}}
    talk = [{"role": "user", "content": "The ferry leaves at noon. " * 40}] * 5
    talk += [{"role": "assistant", "content": None, "tool_calls": [call]}] * 5
    chat = wire.parse(json.dumps({"messages": talk, "tools": [tool]}).encode())
    made = total([of_settings(counter, chat.settings), *(of_message(counter, m) for m in chat.messages)])
    known = learned(REAL)
    past = Past(made, 900)

    scaled = counter.with_ratios(known.scaled(made, past, margin=margin))
    parts = scaled.overhead(chat.settings) + sum(map(scaled.message, chat.messages))

    whole = known.estimate(made, past) * (1 + known.margin(past) if margin else 1)
    assert whole <= parts <= whole + len(talk) + 3


def test_a_past_that_was_cheap_counts_for_less_the_more_was_added() -> None:
    known = learned(REAL)
    past = Past(PROSE, round(0.8 * known.tokens(PROSE)))
    factors = [known.factor(Counts(*(size * n for n in PROSE)), past) for size in (1, 2, 4, 100)]

    assert factors[0] == pytest.approx(0.8, rel=0.001)
    assert factors == sorted(factors)
    assert factors[-1] < 1


def test_a_trimmed_conversation_keeps_its_ratio() -> None:
    known = learned(REAL)
    past = Past(PROSE, round(0.8 * known.tokens(PROSE)))

    assert known.factor(Counts(*(n // 2 for n in PROSE)), past) == pytest.approx(0.8, rel=0.001)


@pytest.mark.parametrize("actual", [-5, 0, LARGEST + 1, 10**30])
def test_a_usage_that_no_prompt_has_teaches_nothing(actual: int) -> None:
    known = learned(REAL, 5)

    assert known.observe(PROSE, actual) is known


@pytest.mark.parametrize("settled", [0, 40], ids=["from the start", "when settled"])
def test_a_prompt_that_was_cut_is_reported_and_never_learned_from(settled: int) -> None:
    known = learned(REAL, settled)
    long = Counts(latin=40_000, code=2_000, messages=100)

    after = known.observe(long, 4096)

    assert known.truncated(long, 4096)
    assert (after.sums, after.weights, after.seen) == (known.sums, known.weights, known.seen)
    assert after.shortfalls == 1
    assert after.observe(PROSE, REAL(PROSE)).shortfalls == 0


def test_a_conversation_that_grew_and_costs_no_more_was_cut() -> None:
    known = learned(REAL)
    past = Past(PROSE, REAL(PROSE))
    grown = PROSE._replace(latin=5000, messages=22)

    assert known.truncated(grown, past.actual, past)
    assert not known.truncated(grown, past.actual)
    assert not known.truncated(grown, REAL(grown), past)


def test_a_conversation_that_was_trimmed_and_costs_less_was_not_cut() -> None:
    known = learned(REAL)
    trimmed = PROSE._replace(latin=2500, messages=12)

    assert not known.truncated(trimmed, REAL(trimmed), Past(PROSE, REAL(PROSE)))


def test_a_template_that_leaves_tools_out_cuts_nothing() -> None:
    tools = Counts(latin=500, calls=2_000, schemas=20_000, messages=10)

    assert not start(PRIOR).truncated(tools, REAL(tools))
    assert upstream_truncated(start(PRIOR).tokens(tools), REAL(tools))


def test_so_many_shortfalls_in_a_row_begin_anew() -> None:
    known = learned(Model(2.3, 2.9, 3.0, 3.0, 1.0, 1.0, 3.0))
    for _ in range(SHORTFALLS - 1):
        known = known.observe(PROSE, 3000)
    assert known.seen > 0

    assert known.observe(PROSE, 3000) == start(PRIOR)


@pytest.mark.parametrize(
    ("estimate", "actual", "cut"),
    [(10_000, 4096, True), (10_000, 5999 - 64, True), (10_000, 6001, False), (100, 10, False), (0, 0, False)],
)
def test_only_a_large_shortfall_is_a_cut(estimate: int, actual: int, cut: bool) -> None:
    assert upstream_truncated(estimate, actual) is cut


def test_the_margin_covers_what_was_underestimated_lately() -> None:
    known = learned(REAL, 40 + SETTLED)
    past = Past(PROSE, REAL(PROSE))
    for _ in range(ENOUGH):
        known = known.observe(PROSE, math.ceil(1.04 * known.tokens(PROSE)), past)

    assert 0.04 < known.margin(past) <= MARGIN_MAX


def test_where_estimates_are_right_the_margin_is_small() -> None:
    known = learned(Model(1.15, 1.45, 1.3, 1.4, 1.45, 1.45, 0.0), 100)

    assert known.margin() < 0.05
    assert known.factor(PROSE, None) == 1.0


def test_errors_of_the_beginning_are_not_held_against_it() -> None:
    known = learned(REAL, SETTLED)

    assert known.opening == b""


counted = st.builds(
    Counts, *(st.integers(0, 10**6) for _ in range(6)), fixed=st.integers(0, 10**5), messages=st.integers(0, 10**4)
)


@given(st.lists(st.tuples(counted, st.integers(1, LARGEST), st.booleans()), max_size=40))
@settings(max_examples=50, deadline=None)
def test_whatever_is_observed_it_stays_within_its_bounds(seen: list[tuple[Counts, int, bool]]) -> None:
    known, past = start(PRIOR), None
    for counts, actual, again in seen:
        known = known.observe(counts, actual, past if again else None)
        past = Past(counts, actual)
        estimate = known.estimate(counts, past)

        assert estimate >= 1
        assert MARGIN_MIN <= known.margin(past) <= MARGIN_MAX
        assert 0.5 <= min(known.weights[:4]) <= max(known.weights[:4]) <= 6
        assert all(map(math.isfinite, known.weights))
    assert max(len(known.opening), len(known.following)) <= RECENT


def test_an_observation_changes_nothing_but_what_it_returns() -> None:
    known = learned(REAL, 20)
    copy = replace(known)

    known.observe(PROSE, 5_000, Past(CODE, 100))

    assert known == copy
