"""What one request came to: the bytes to send, and everything that headers, audit and metrics say about it. (pure)"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from policies.types import Window
from proxy.conversations.placed import Placed
from proxy.conversations.turns import Turn
from proxy.pipeline import kept, listing
from proxy.pipeline.budget import Budget, Trigger
from proxy.pipeline.decision import Fate
from proxy.pipeline.prompt import Prompt
from proxy.route import Route


class Action(StrEnum):
    """What happened to a request, as `x-trimtab-action` says it."""

    PASS = "pass"  # noqa: S105 - no password
    TRIMMED = "trimmed"
    HELD = "held"
    RETRIED = "retried"
    UNFIT = "unfit"
    BYPASS = "bypass"
    SHADOW = "shadow"


class Stages:
    """Milliseconds spent in each stage of a request."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self.ms: dict[str, float] = {}

    def stage(self, name: str) -> "_Stage":
        """Add the block's time to stage `name`."""
        return _Stage(self, name)

    def now_ms(self) -> float:
        """The clock's time."""
        return self._clock() * 1000

    @property
    def spent_s(self) -> float:
        """Seconds that have passed since it began, between stages too."""
        return self._clock() - self._began

    def report(self) -> dict[str, float]:
        """The stages and their total, rounded to microseconds."""
        total = {**self.ms, "total": sum(self.ms.values())}
        return {name: round(ms, 3) for name, ms in total.items()}


class _Stage:
    """What `Stages.stage` gives. No generator: every request enters several, and this costs a third."""

    __slots__ = ("_name", "_stages", "_start")

    def __init__(self, stages: Stages, name: str) -> None:
        self._stages = stages
        self._name = name

    def __enter__(self) -> None:
        self._start = self._stages.now_ms()

    def __exit__(self, *_: object) -> None:
        ms = self._stages.ms
        ms[self._name] = ms.get(self._name, 0.0) + self._stages.now_ms() - self._start


@dataclass(slots=True, kw_only=True)
class Outcome:
    """`body` is what goes upstream; `changed` is False where it is the client's own bytes.

    `unknown_messages` state no role; they are pinned.
    `utilization_before` is an upper bound where the request was not counted (`counted` False). Token figures are
    None there. `prompt`, `window`, `fates` are given where a cut was decided. `turn` is in flight until it is ended.
    `cache_marker_evicted`: a message with a client's cache marker goes with this decision. `cache_pays`: the cut saves
    more than it takes from the provider's cache, within the route's horizon and at its price of cached tokens.
    `teach` learns from the prompt tokens that the upstream counted, and says whether it cut the prompt.
    `retried` is the audit id of the outcome that this one replaces, `refused` what the upstream found too long.
    `gathered` says what vectors there were and what was done without, `weights` what the policy decided with.
    `notes_made` and `notes_gone` are the notes that came and the recall notes that went. `after` is what is to be done
    once the turn has ended, `prepare` what with the reply, None if it did not come whole.
    """

    route: Route
    body: bytes
    audit_id: str
    stages: Stages
    changed: bool = False
    action: Action = Action.PASS
    model: str | None = None
    conversation: str | None = None
    trigger: Trigger | None = None
    policy: str = ""
    budget: Budget | None = None
    target: int | None = None
    counted: bool = False
    estimated: bool = False
    tokens_before: int | None = None
    tokens_after: int | None = None
    overhead_tokens: int | None = None
    utilization_before: float | None = None
    utilization_after: float | None = None
    slots_total: int | None = None
    unknown_messages: int | None = None
    slots_evicted: int = 0
    replayed: int = 0
    replayed_from: str | None = None
    prompt: Prompt | None = None
    window: Window | None = None
    fates: Mapping[str, Fate] = field(default_factory=dict)
    reason: str | None = None
    faults: list[str] = field(default_factory=list)
    held_ms: float = 0.0
    prepared: str = "none"
    ledger: str = "none"
    cache_prefix_tokens: int | None = None
    cache_lost_tokens: int | None = None
    cache_marker_evicted: bool = False
    cache_pays: bool | None = None
    turn: Turn | None = None
    teach: Callable[[int], bool] | None = None
    retried: str | None = None
    refused: str | None = None
    notes_made: tuple[Placed, ...] = ()
    notes_gone: tuple[Placed, ...] = ()
    gathered: Mapping[str, object] | None = None
    weights: Mapping[str, object] | None = None
    after: Callable[[], None] | None = None
    prepare: Callable[[Mapping[str, Any] | None], None] | None = None

    @property
    def alarming(self) -> bool:
        """Whether an operator should look at this one: what could be dropped was not enough, or something failed."""
        return bool(self.faults) or self.action is Action.UNFIT or (self.reason or "").startswith("on_overflow")

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers; those of tokens only where the request was counted."""
        values: list[tuple[str, object]] = [("action", self.action.value), ("policy", self.policy)]
        if self.tokens_before is not None and self.tokens_after is not None:
            values += [("tokens-before", self.tokens_before), ("tokens-after", self.tokens_after)]
        values += [("evicted", self.slots_evicted), ("audit-id", self.audit_id)]
        values.append(("overhead-ms", f"{sum(self.stages.ms.values()):.2f}"))
        if self.reason:
            values.append(("reason", self.reason))
        if self.faults:
            values.append(("faults", ",".join(self.faults)))
        return [(f"x-trimtab-{name}".encode(), str(value).encode()) for name, value in values]

    def over(self) -> None:
        """Let go of the request: all that was to be said of it has been said.

        A finished request may be part of a cycle, and would keep its messages in memory until the collector comes.
        """
        self.body, self.prompt, self.window, self.fates = b"", None, None, {}
        self.notes_made = self.notes_gone = ()
        self.turn = self.teach = self.after = self.prepare = None

    def record(self, *, everything: bool = False, content: bool = False, most: int | None = None) -> dict[str, object]:
        """The audit record without the fields that only the end of the turn or the writer knows.

        Lists the slots that the decision changed, or `everything`, at most `most` of them; their texts only with
        `content`.
        """
        budget = self.budget
        listed = listing.listing(
            self.window, self.prompt, self.fates, everything=everything, content=content, most=most
        )
        notes = listing.notes(self.notes_made, self.notes_gone, content=content)
        if everything and self.window is not None and self.prompt is not None:
            stayed = {str(row["id"]): row for row in listed.rows if row["action"] == "keep"}
            for id_, reason in kept.reasons(self.window, self.prompt, self.route, stayed.keys()).items():
                stayed[id_]["reason"] = reason
        return {
            "event": "decision",
            "audit_id": self.audit_id,
            "route": self.route.name,
            "model": self.model,
            "conversation": self.conversation,
            "mode": self.route.mode.value,
            "action": self.action.value,
            "trigger": self.trigger.value if self.trigger else None,
            "policy": self.policy,
            "window": budget.window if budget else "unknown",
            "reserve": budget.reserve if budget else None,
            "budget": budget.tokens if budget else None,
            "target": self.target,
            "rules": kept.rules(self.route) if self.trigger else None,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "overhead_tokens": self.overhead_tokens,
            "pinned_tokens": sum(s.tokens for s in self.window.slots if s.pinned) if self.window else None,
            "utilization_before": self.utilization_before,
            "utilization_after": self.utilization_after,
            "slots_total": self.slots_total,
            "unknown_messages": self.unknown_messages,
            "slots_evicted": self.slots_evicted,
            "tokens_freed": (self.tokens_before or 0) - (self.tokens_after or 0),
            "estimated": self.estimated,
            "prepared": self.prepared,
            "ledger": self.ledger,
            "replayed": {"slots": self.replayed, "audit_id": self.replayed_from} if self.replayed else None,
            "cache_prefix_tokens": self.cache_prefix_tokens,
            "cache_lost_tokens": self.cache_lost_tokens,
            "cache_marker_evicted": self.cache_marker_evicted,
            "cache_pays": self.cache_pays,
            "overhead_ms": self.stages.report(),
            "gathered": dict(self.gathered) if self.gathered is not None else None,
            "weights": dict(self.weights) if self.weights is not None else None,
            "held_ms": round(self.held_ms, 3),
            "retry_of": self.retried,
            "refused": self.refused,
            "reason": self.reason,
            "faults": list(self.faults),
            "slots": [*listed.rows, *notes],
            "slots_unlisted": list(listed.rest),
        }
