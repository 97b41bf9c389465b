"""Reserve, budget, thresholds and targets."""

import pytest

from policies.fifo import Fifo
from proxy.economics import Economy
from proxy.pipeline.budget import Budget, Trigger, cached, compute, prefix, reserve, target, trigger
from proxy.route import Route


def route(**settings: object) -> Route:
    return Route(name="r", upstream="u", policy=Fifo(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "settings", "expected"),
    [
        pytest.param((), {}, 4096, id="no limit named: the route's reserve"),
        pytest.param((), {"reserve_output": 50_000}, 32_000, id="at most a quarter of the window"),
        pytest.param((1000,), {}, 1000, id="the client's limit"),
        pytest.param((1000, 9000, 2000), {}, 9000, id="the largest of the client's limits"),
        pytest.param((127_000,), {}, 64_000, id="at most half the window"),
        pytest.param((127_000,), {"reserve_cap": 8000}, 8000, id="at most the route's cap"),
        pytest.param((500,), {"reserve_cap": 8000}, 500, id="a cap raises nothing"),
        pytest.param((0,), {}, 0, id="a limit of zero reserves nothing"),
    ],
)
def test_reserve_is_what_the_answer_may_take(limits: tuple[int, ...], settings: dict[str, int], expected: int) -> None:
    assert reserve(route(**settings), 128_000, limits) == expected


@pytest.mark.parametrize(
    ("window", "settings", "fixed", "expected"),
    [
        pytest.param(10_000, {"reserve_output": 1000}, None, Budget(10_000, 1000, 9000), id="window less reserve"),
        pytest.param(10_000, {"reserve_output": 0, "budget_tokens": 500}, None, Budget(10_000, 0, 500), id="smaller"),
        pytest.param(
            10_000, {"reserve_output": 0, "budget_tokens": 50_000}, None, Budget(10_000, 0, 10_000), id="larger"
        ),
        pytest.param(None, {}, None, None, id="nobody knows the window"),
        pytest.param(None, {"budget_tokens": 500}, None, Budget(None, 0, 500), id="unknown window, known budget"),
        pytest.param(10_000, {}, 0, Budget(10_000, 0, 10_000), id="a fixed reserve of zero"),
        pytest.param(1, {}, 500, Budget(1, 0, 1), id="a fixed reserve never takes the whole window"),
    ],
)
def test_budget_is_the_window_less_the_reserve(
    window: int | None, settings: dict[str, int], fixed: int | None, expected: Budget | None
) -> None:
    assert compute(route(**settings), window, (), fixed) == expected


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (800, None),
        (849, None),
        (850, Trigger.NORMAL),
        (949, Trigger.NORMAL),
        (950, Trigger.EMERGENCY),
        (5000, Trigger.EMERGENCY),
    ],
)
def test_thresholds_decide_when_a_cut_is_made(used: int, expected: Trigger | None) -> None:
    assert trigger(route(), used, 1000) is expected


@pytest.mark.parametrize(
    ("why", "growth", "expected"),
    [
        pytest.param(Trigger.NORMAL, 0.0, 700, id="normal"),
        pytest.param(Trigger.EMERGENCY, 0.0, 600, id="emergency"),
        pytest.param(Trigger.NORMAL, 18.0, 700, id="eight turns of growth still fit"),
        pytest.param(Trigger.NORMAL, 25.0, 650, id="a lower target makes room for eight turns"),
        pytest.param(Trigger.NORMAL, 500.0, 400, id="never below 0.40"),
    ],
)
def test_target_leaves_room_for_the_next_turns(why: Trigger, growth: float, expected: int) -> None:
    assert target(route(breathing_turns=8, cache=Economy(min_tokens=0)), why, 1000, growth) == expected


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        pytest.param(1000, 700, id="all that is sent is too short"),
        pytest.param(2000, 1024, id="as deep as something is cached"),
        pytest.param(4000, 1600, id="0.40 of it is cached"),
    ],
)
def test_a_target_is_not_lowered_below_what_a_provider_caches(budget: int, expected: int) -> None:
    assert target(route(breathing_turns=8), Trigger.NORMAL, budget, 500.0) == expected


@pytest.mark.parametrize(
    ("budget", "least", "expected"),
    [(1462, 1024, False), (1463, 1024, True), (1463, 4096, False), (100, 0, True)],
)
def test_a_conversation_is_cached_where_what_a_cut_leaves_is(budget: int, least: int, expected: bool) -> None:
    assert cached(route(cache=Economy(min_tokens=least)), budget) is expected


@pytest.mark.parametrize(("budget", "expected"), [(3413, 0.0), (3414, 0.3), (10_000, 0.3)])
def test_a_beginning_too_short_to_be_cached_is_not_kept(budget: int, expected: float) -> None:
    assert prefix(route(keep_prefix=0.3), budget) == expected


def test_breathing_can_be_turned_off() -> None:
    assert target(route(breathing_turns=0), Trigger.NORMAL, 1000, 500.0) == 700
