"""One route as values: where its requests go, which policy trims them, and by which rules."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from policies.types import Policy
from proxy.economics import Economy
from proxy.experiment import Experiment


class Mode(StrEnum):
    """Whether decisions are carried out (enforce), only audited (shadow), or not made (off)."""

    ENFORCE = "enforce"
    SHADOW = "shadow"
    OFF = "off"


class OnOverflow(StrEnum):
    """What happens when all that is evictable is gone and the prompt is still over the budget."""

    TRUNCATE = "truncate"
    REJECT = "reject"
    FORCE = "force"
    PASSTHROUGH = "passthrough"


class Alternate(StrEnum):
    """Whether user and assistant turns must alternate in what is sent."""

    FREE = "free"
    STRICT = "strict"
    AS_INPUT = "as_input"  # strict where the client's own messages alternated


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Shares of the budget at which a request is counted, trimmed, and trimmed hard."""

    warn: float = 0.75
    evict: float = 0.85
    emergency: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Shares of the budget that a normal and an emergency eviction go down to."""

    evict: float = 0.70
    emergency: float = 0.60


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What a route pins besides system and developer messages and the last user message."""

    first_user: bool = True
    text: tuple[re.Pattern[str], ...] = ()
    tools: frozenset[str] = frozenset()


class SummaryKind(StrEnum):
    """Whether a summary is made of the messages' own sentences, by a model, or not at all."""

    EXTRACTIVE = "extractive"
    LLM = "llm"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """How what a policy wants summarised is summarised; `upstream` and `model` where a model does it.

    A summary has at most `max_tokens` beside its heading, and is there within `deadline_s`, or the extractive one
    takes its place. `window` is the summariser's context window in tokens, None: by the model.
    """

    kind: SummaryKind = SummaryKind.EXTRACTIVE
    upstream: str | None = None
    model: str | None = None
    max_tokens: int = 150
    deadline_s: float = 5.0
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Which model rates messages, where a policy goes by that, and how long it may take for some of them."""

    upstream: str | None = None
    model: str | None = None
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The rules for the requests of one route. Tokens and seconds; None means «by the model» or «no limit»."""

    name: str
    upstream: str
    policy: Policy
    experiment: Experiment | None = None  # decides the policy of each conversation instead
    window: int | None = None
    budget_tokens: int | None = None
    reserve_output: int = 4096
    reserve_cap: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    thresholds: Thresholds = field(default_factory=Thresholds)
    targets: Targets = field(default_factory=Targets)
    breathing_turns: int = 16
    keep_prefix: float = 0.3
    cache: Economy = field(default_factory=Economy)
    protect_last: int = 4
    pins: Pins = field(default_factory=Pins)
    on_overflow: OnOverflow = OnOverflow.TRUNCATE
    mode: Mode = Mode.ENFORCE
    alternate_roles: Alternate = Alternate.AS_INPUT
    first_role_user: bool | None = None  # None: where the client's own messages began with a user's
    recall_budget: float = 0.4
    recall_exclude_tools: frozenset[str] = frozenset()
    summaries: Summaries = field(default_factory=Summaries)
    ratings: Ratings = field(default_factory=Ratings)
    merge_notes: bool = False  # notes are the first words of a user's message even where they could stand alone
    hold_wait_s: float = 2.0
    allow_overrides: bool = False
    tenant_header: str | None = None  # names the tenant instead of the key

    @property
    def policies(self) -> tuple[Policy, ...]:
        """Whatever may trim its requests."""
        return (self.policy,) if self.experiment is None else tuple(arm.policy for arm in self.experiment.arms)
