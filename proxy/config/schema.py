"""The configuration as frozen values: every setting, its default, and what it may be. (pure)

`config.example.yaml` has the same settings with a comment on each. Tokens are tokens, seconds end in `_s`, bytes in
`_bytes`, shares are of the budget.
"""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from policies import registry
from policies.errors import PolicyError
from proxy.config.models import SMALL_MODEL, Embeddings, Ratings, Summaries
from proxy.config.problems import MisplacedError, SeveralProblemsError
from proxy.config.scalars import (
    BaseUrl,
    Count,
    Fingerprint,
    HeaderGlobs,
    HeaderName,
    Name,
    PathPrefix,
    Positive,
    Regex,
    Seconds,
    Share,
    Shares,
    State,
    Text,
    Variable,
    some,
    unshared,
)
from proxy.config.sections import Audit, Key, Log, Section, Server, Telemetry
from proxy.config.yaml_paths import suggest
from proxy.route import Mode, OnOverflow

DEFAULT_POLICY = "hybrid"


class Upstream(Section):
    """A provider: its address, whose key is sent, and how long it may take."""

    base_url: BaseUrl
    api_key_env: Variable | None = None
    connect_timeout_s: Seconds = 10.0
    idle_timeout_s: Seconds = 600.0
    ca_file: Text | None = None
    max_connections: Positive = 1000

    @property
    def host(self) -> str:
        """The host of the address, in lower case."""
        return urlsplit(self.base_url).hostname or ""


class Match(Section):
    """The conditions of a route, ANDed: a path prefix, globs for the model and for headers, a key's fingerprint."""

    path: PathPrefix = "/"
    model: Text | None = None
    header: HeaderGlobs = Field(default={})
    key: Fingerprint | None = None


class Pin(Section):
    """What is pinned besides the instructions and the last user message."""

    first_user: bool = True
    text: tuple[Regex, ...] = ()
    tools: tuple[Text, ...] = ()


class Thresholds(Section):
    """Shares of the budget at which a request is prepared for, trimmed, and trimmed hard."""

    warn: Share = 0.75
    evict: Share = 0.85
    emergency: Share = 0.95

    @model_validator(mode="after")
    def _ordered(self) -> "Thresholds":
        if not self.warn <= self.evict <= self.emergency:
            got = f"{self.warn}, {self.evict}, {self.emergency}"
            raise ValueError(f"must be ordered warn <= evict <= emergency <= 1, got {got}")
        return self


class Targets(Section):
    """Shares of the budget that a normal and an emergency eviction go down to."""

    evict: Annotated[float, Field(gt=0, le=1)] = 0.70
    emergency: Annotated[float, Field(gt=0, le=1)] = 0.60

    @model_validator(mode="after")
    def _ordered(self) -> "Targets":
        if self.emergency > self.evict:
            raise ValueError(f"must be ordered emergency <= evict, got {self.emergency} > {self.evict}")
        return self


class Recall(Section):
    """How much of the budget all live recall notes may take, and which tools' output is never quoted."""

    budget: Annotated[float, Field(ge=0, le=0.5)] = 0.4
    exclude_tools: tuple[Text, ...] = ()


class Notes(Section):
    """Whether recall and summary notes are user's messages of their own, or the first words of one."""

    placement: Literal["user", "merge"] = "user"


class Hold(Section):
    """How long a request waits for the turn it belongs to, where it does not fit as it is."""

    wait_s: Annotated[float, Field(ge=0, le=60)] = 2.0


class Cache(Section):
    """What a cached token costs, as a share of the full price, and over how many requests a cut has to pay.

    A provider caches nothing of a prompt of fewer than `min_tokens` tokens, so nothing is done there for its cache.
    """

    price: Share = 0.25
    horizon_turns: Count = 20
    min_tokens: Count = 1024


class PolicyChoice(Section):
    """A policy by name with its options; written `rwr` or `{name: rwr, alpha: 0.6}`."""

    name: str
    options: dict[str, Any] = Field(default={})

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            raise ValueError(f"must be a policy's name or a mapping with its name; known: {_policies()}")
        name = value.get("name")
        if not isinstance(name, str):
            raise MisplacedError(("name",), f"required: a policy's name; known: {_policies()}")
        return {"name": name, "options": {key: option for key, option in value.items() if key != "name"}}

    @model_validator(mode="after")
    def _create(self) -> "PolicyChoice":
        try:
            registry.create(self.name, self.options)
        except PolicyError as error:
            raise SeveralProblemsError([_option_problem(text) for text in error.problems]) from None
        return self

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}


def _policies() -> str:
    return ", ".join(registry.names())


def _option_problem(text: str) -> MisplacedError:
    # The registry knows an option as policy.options.alpha; in the file it stands beside the name.
    where, _, message = text.partition(": ")
    option = where.removeprefix("policy").removeprefix(".options").removeprefix(".")
    return MisplacedError((option,) if option else (), message)


class Defaults(Section):
    """What every route inherits; a route's own settings go over these."""

    policy: PolicyChoice = PolicyChoice(name=DEFAULT_POLICY)
    experiment: Shares | None = None
    window: Positive | None = None
    budget_tokens: Positive | None = None
    reserve_output: Count = 4096
    reserve_cap: Count | None = None
    max_messages: Positive | None = None
    max_bytes: Positive | None = None
    thresholds: Thresholds = Thresholds()
    targets: Targets = Field(default=Targets(), validate_default=True)
    breathing_turns: Count = 16
    keep_prefix: Share = 0.3
    cache: Cache = Cache()
    protect_last: Count = 4
    pin: Pin = Pin()
    on_overflow: OnOverflow = OnOverflow.TRUNCATE
    mode: Mode = Mode.ENFORCE
    recall: Recall = Field(default=Recall(), validate_default=True)
    summaries: Summaries = Summaries()
    ratings: Ratings = Field(default=Ratings(), validate_default=True)
    notes: Notes = Notes()
    alternate_roles: Literal["free", "strict"] | None = None
    first_role_user: bool | None = None
    hold: Hold = Hold()
    allow_overrides: bool = False
    tenant_header: HeaderName | None = None

    @field_validator("targets")
    @classmethod
    def _below_thresholds(cls, targets: Targets, info: ValidationInfo) -> Targets:
        thresholds = info.data.get("thresholds")
        if thresholds is None:  # refused already
            return targets
        pairs = (
            ("evict", targets.evict, thresholds.evict),
            ("emergency", targets.emergency, thresholds.emergency),
        )
        found = [
            MisplacedError((key,), f"must be less than thresholds.{key}, which is {limit}, got {target}")
            for key, target, limit in pairs
            if target >= limit
        ]
        if found:
            raise SeveralProblemsError(found)
        return targets

    @field_validator("keep_prefix")
    @classmethod
    def _leaves_room(cls, keep_prefix: float, info: ValidationInfo) -> float:
        _below_target(keep_prefix, info)
        return keep_prefix

    @field_validator("recall")
    @classmethod
    def _fits(cls, recall: Recall, info: ValidationInfo) -> Recall:
        try:
            _below_target(recall.budget, info)
        except ValueError as error:
            raise MisplacedError(("budget",), str(error)) from None
        return recall


def _below_target(share: float, info: ValidationInfo) -> None:
    targets = info.data.get("targets")
    if targets is not None and share >= targets.emergency:
        raise ValueError(f"must be less than targets.emergency, which is {targets.emergency}, got {share}")


class RouteSettings(Defaults):
    """One route: which requests it takes, where they go, and the rules, those of `defaults` filled in."""

    name: Name
    match: Match = Match()
    upstream: str

    @field_validator("ratings")
    @classmethod
    def _rated(cls, ratings: Ratings, info: ValidationInfo) -> Ratings:
        policy = info.data.get("policy")
        if policy is not None and policy.options.get("relevance") == "llm":
            missing = [name for name in ("upstream", "model") if getattr(ratings, name) is None]
            if missing:
                raise SeveralProblemsError(
                    [
                        MisplacedError((name,), f"required where the policy's relevance is llm: {SMALL_MODEL[name]}")
                        for name in missing
                    ]
                )
        return ratings


class Config(Section):
    """A whole configuration, every default filled in."""

    server: Server = Server()
    state: State = Field(default="memory://", validate_default=True)
    state_ttl_s: Positive = 86_400
    state_timeout_s: Seconds = 0.25
    state_key_env: Variable | None = None
    audit: Audit = Audit()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()
    embeddings: Embeddings = Embeddings()
    upstreams: Annotated[dict[Name, Upstream], AfterValidator(some)]
    defaults: Defaults = Defaults()
    routes: Annotated[tuple[RouteSettings, ...], AfterValidator(some)]
    keys: tuple[Key, ...] = ()

    @field_validator("keys")
    @classmethod
    def _known_routes(cls, keys: tuple[Key, ...], info: ValidationInfo) -> tuple[Key, ...]:
        names = [route.name for route in info.data.get("routes", ())]
        found = [
            MisplacedError((number, "routes", place), f"no route is called {name!r}; {suggest(name, names)}")
            for number, key in enumerate(keys)
            for place, name in enumerate(key.routes or ())
            if names and name not in names
        ]
        if found:
            raise SeveralProblemsError(found)
        return keys

    @field_validator("state")
    @classmethod
    def _shared(cls, state: str, info: ValidationInfo) -> str:
        server = info.data.get("server")
        problem = None if server is None else unshared(state, server.workers, setting="server.workers")
        if problem is not None:
            raise ValueError(problem)
        return state
