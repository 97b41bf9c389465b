"""How many tokens a prompt may have, when a cut is due, and how deep it goes. (pure)"""

from dataclasses import dataclass
from enum import StrEnum

from proxy.route import Route

LOWEST_TARGET = 0.40  # breathing room never lowers a target below this share of the budget


class Trigger(StrEnum):
    """Why a cut is made, by how full the window is; the other two are asked for rather than reached."""

    NORMAL = "normal"
    EMERGENCY = "emergency"
    RETRY = "retry"
    BACKGROUND = "background"


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens: the model's `window`, what is kept free for the answer, and what is left for the prompt.

    `window` is None where nobody knows it and the route's `budget_tokens` stands in for it.
    """

    window: int | None
    reserve: int
    tokens: int


def reserve(route: Route, window: int, output_limits: tuple[int, ...]) -> int:
    """Tokens kept free for the answer: the client's largest limit within the route's cap and half the window.

    Where the client names no limit: the route's `reserve_output`, at most a quarter of the window.
    """
    if not output_limits:
        return min(route.reserve_output, window // 4)
    cap = window // 2 if route.reserve_cap is None else min(route.reserve_cap, window // 2)
    return min(max(output_limits), cap)


def compute(
    route: Route, window: int | None, output_limits: tuple[int, ...], fixed: int | None = None
) -> Budget | None:
    """The budget of a request, or None where neither the window nor a `budget_tokens` is known.

    `fixed` replaces the reserve that would be computed, whatever the client's limits say.
    """
    if window is None:
        return None if route.budget_tokens is None else Budget(None, 0, route.budget_tokens)
    kept = min(fixed, window - 1) if fixed is not None else reserve(route, window, output_limits)
    room = window - kept
    return Budget(window, kept, room if route.budget_tokens is None else min(room, route.budget_tokens))


def trigger(route: Route, used: int, budget: int) -> Trigger | None:
    """The cut that `used` tokens of a budget call for, None below the route's `evict` threshold."""
    if used >= route.thresholds.emergency * budget:
        return Trigger.EMERGENCY
    if used >= route.thresholds.evict * budget:
        return Trigger.NORMAL
    return None


def share(route: Route, why: Trigger) -> float:
    """The target of a cut as a share of the budget, before breathing room lowers it."""
    return route.targets.emergency if why in (Trigger.EMERGENCY, Trigger.RETRY) else route.targets.evict


def target(route: Route, why: Trigger, budget: int, growth: float) -> int:
    """Tokens to cut down to, for a conversation that grows by `growth` tokens a turn.

    Lowered below the trigger's own target, but not below 0.40 of the budget, where the next cut would otherwise
    come within `breathing_turns` turns: every cut costs the provider's prompt cache what stands behind it. Nor below
    the `cache.min_tokens` that a prompt must have for anything of it to be cached.
    """
    own = share(route, why)
    if not route.breathing_turns or not budget:
        return _tokens(own, budget)
    breathing = route.thresholds.evict - route.breathing_turns * growth / budget
    return _tokens(min(own, max(LOWEST_TARGET, breathing, route.cache.min_tokens / budget)), budget)


def cached(route: Route, budget: int) -> bool:
    """Whether a provider caches anything of a prompt that was cut down to the target of a normal cut.

    Where it does not, a cut costs nothing but what goes, and may come as often as there is something to gain.
    """
    return share(route, Trigger.NORMAL) * budget >= route.cache.min_tokens


def prefix(route: Route, budget: int) -> float:
    """The route's `keep_prefix`; 0 where a provider would not cache so short a beginning."""
    return route.keep_prefix if route.keep_prefix * budget >= route.cache.min_tokens else 0.0


def _tokens(share: float, budget: int) -> int:
    return int(share * budget + 1e-6)  # 0.65 of 1,000 is 650, whatever the sum that gave 0.65
