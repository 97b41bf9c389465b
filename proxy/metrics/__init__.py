"""What Prometheus is told of chat requests: how many, what was done to them, what it saved, and what it took.

Labels come from closed sets: routes and policies of the configuration, enumerations, and models that an upstream
answered for. Whatever else turns up under such a label is called "other".
"""

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from proxy.pipeline.budget import Trigger
from proxy.pipeline.outcome import Action, Outcome
from proxy.streaming import Reading
from proxy.upstream.relay import End

# Else every counter has a second series, with the time of its first increase.
disable_created_metrics()  # type: ignore[no-untyped-call]

OTHER = "other"
MODELS = 50  # names that are told apart, in each worker
FAULTS = 50
STAGES = frozenset({"parse", "count", "gather", "decide", "fulfil", "render", "recall", "total"})

_UTILIZATION = (0.1, 0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.5, 2.0, 4.0)
_OVERHEAD_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_HOLD_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)


class Metrics:
    """The instruments of one worker in a registry of its own; several workers' are merged by `exposition`.

    Nothing here raises, and everything is cheap enough for the event loop.
    """

    def __init__(self, *, routes: Collection[str], policies: Collection[str]) -> None:
        self.registry = CollectorRegistry()
        self._routes = _Closed(routes)
        self._policies = _Closed(policies)
        self._stages = _Closed(STAGES)
        self._models = _Bounded(MODELS)
        self._faults = _Bounded(FAULTS)
        self._requests = self._counter(
            "trimtab_requests", "Chat requests, by what was done to them and how they were answered.",
            "route", "action", "status",
        )  # fmt: skip
        self._ends = self._counter("trimtab_stream_ends", "How answers to chat requests ended.", "route", "end")
        self._refused = self._counter(
            "trimtab_refused", "Chat requests that the proxy answered with an error of its own.", "route", "code"
        )
        self._relayed = self._counter("trimtab_passed_through", "Requests that are not chat.", "route", "end")
        self._models_seen = self._counter("trimtab_model_requests", "Chat requests that upstreams answered.", "model")
        self._evictions = self._counter("context_eviction", "Cuts that were made.", "kind", "policy")
        self._slots = self._counter("trimtab_slots", "Slots that cuts changed, by what became of them.", "action")
        self._warned = self._counter(
            "trimtab_warned", "Requests between the thresholds warn and evict, which change nothing.", "route"
        )
        self._utilization = self._histogram(
            "context_utilization", "Prompt as it came, decisions replayed, as a share of its budget.", _UTILIZATION,
            "route",
        )  # fmt: skip
        self._utilization_sent = self._histogram(
            "trimtab_utilization_sent", "Prompt as it was sent, as a share of its budget.", _UTILIZATION, "route"
        )
        self._before = self._counter("trimtab_tokens_before", "Tokens of counted prompts as they came.", "route")
        self._after = self._counter("trimtab_tokens_after", "Tokens of counted prompts as they were sent.", "route")
        self._saved = self._counter("trimtab_tokens_saved", "Tokens of counted prompts that were not sent.", "route")
        self._cache_prefix = self._counter(
            "trimtab_cache_prefix_tokens", "Leading tokens that equal the previous request of a conversation.", "route"
        )
        self._usage = self._counter("trimtab_usage_tokens", "Tokens as upstreams billed them.", "route", "kind")
        self._overhead = self._histogram(
            "trimtab_overhead_seconds", "What the proxy itself took, by stage.", _OVERHEAD_S, "stage"
        )
        self._holds = self._histogram(
            "trimtab_hold_seconds", "How long requests waited for the turn they go on from.", _HOLD_S, "route"
        )
        self._notes = self._counter("trimtab_notes", "Notes that were made, of what was dropped.", "kind")
        self._note_tokens = self._counter("trimtab_note_tokens", "Tokens of notes that were made.", "kind")
        self._prepared = self._counter(
            "trimtab_prepared", "Cuts, by what of them was made ahead: the plan, parts of it, or nothing.", "prepared"
        )
        self._vectors = self._counter(
            "trimtab_vectors", "Texts that decisions wanted vectors of, by whether they came in time.", "result"
        )
        self._truncated = self._counter(
            "trimtab_upstream_truncated", "Prompts of which an upstream silently read only a part.", "route"
        )
        self._faulty = self._counter("trimtab_faults", "Faults of the proxy's own; none cost a request.", "fault")
        for kind in (Trigger.NORMAL, Trigger.EMERGENCY):
            for policy in policies:
                self._evictions(kind.value, policy)  # there from the start, so that a first one is an increase
        self.responses = self.counter("trimtab_responses", "Answers to all requests, whoever made them.", "status")
        build = self.gauge("trimtab_build_info", "1, labelled with the version that runs.", "version", mode="livemax")
        build.labels(_version()).set(1)

    def turn(
        self, outcome: Outcome, end: End, reading: Reading | None, status: int | None, *, truncated: bool = False
    ) -> None:
        """A chat request whose turn has ended; `status` is None where nothing was answered.

        `truncated`: its upstream read less of it than was sent.
        """
        route = self._routes.name(outcome.route.name)
        self._requests(route, outcome.action.value, status_class(status)).inc()
        ended = End.DONE if end is End.EOF and reading is not None and reading.done else end
        self._ends(route, ended.value).inc()
        if outcome.model is not None and status is not None and status < 300:
            self._models_seen(self._models.name(outcome.model)).inc()
        self._decision(outcome, route)
        for stage, ms in outcome.stages.ms.items():
            self._overhead(self._stages.name(stage)).observe(ms / 1000)
        self._overhead("total").observe(sum(outcome.stages.ms.values()) / 1000)
        if outcome.held_ms or outcome.action is Action.HELD:
            self._holds(route).observe(outcome.held_ms / 1000)
        if truncated:
            self._truncated(route).inc()
        for fault in outcome.faults:
            self._faulty(self._faults.name(fault)).inc()
        usage = reading.usage if reading is not None else None
        if usage is not None:
            self._usage(route, "prompt").inc(max(usage.prompt_tokens, 0))
            self._usage(route, "completion").inc(max(usage.completion_tokens, 0))
            self._usage(route, "cached").inc(max(usage.cached_tokens or 0, 0))

    def refused(self, route: str, code: str) -> None:
        """A chat request that was answered with the error `code`, one of the proxy's own."""
        self._refused(self._routes.name(route), code).inc()

    def passed(self, route: str, end: End) -> None:
        """A request that is not chat, its answer ended."""
        self._relayed(self._routes.name(route), end.value).inc()

    def gauge(self, name: str, text: str, *labels: str, mode: str) -> Gauge:
        """A gauge in this registry; `mode` is how the values of several workers are merged."""
        return Gauge(name, text, labels, registry=self.registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A counter in this registry."""
        return Counter(name, text, labels, registry=self.registry)

    def _decision(self, outcome: Outcome, route: str) -> None:
        if outcome.utilization_before is not None:
            self._utilization(route).observe(outcome.utilization_before)
        if outcome.utilization_after is not None:
            self._utilization_sent(route).observe(outcome.utilization_after)
        if outcome.counted and outcome.utilization_before is not None:
            thresholds = outcome.route.thresholds
            if thresholds.warn <= outcome.utilization_before < thresholds.evict:
                self._warned(route).inc()
        if outcome.tokens_before is not None and outcome.tokens_after is not None:
            self._before(route).inc(outcome.tokens_before)
            self._after(route).inc(outcome.tokens_after)
            self._saved(route).inc(max(outcome.tokens_before - outcome.tokens_after, 0))
        if outcome.cache_prefix_tokens is not None:
            self._cache_prefix(route).inc(outcome.cache_prefix_tokens)
        for placed in outcome.notes_made:
            self._notes(placed.note.kind.value).inc()
            self._note_tokens(placed.note.kind.value).inc(max(placed.tokens, 0))
        if outcome.gathered is not None:
            for result, name in (("there", "vectors"), ("late", "late")):
                if isinstance(count := outcome.gathered.get(name), int):
                    self._vectors(result).inc(count)
        if outcome.trigger is not None:
            self._prepared(outcome.prepared).inc()
        if outcome.trigger is not None and outcome.fates:
            self._evictions(outcome.trigger.value, self._policies.name(outcome.policy)).inc()
            for action, slots in Tally(fate.action for fate in outcome.fates.values()).items():
                self._slots(action).inc(slots)

    def _counter(self, name: str, text: str, *labels: str) -> Callable[..., Counter]:
        # Looked up here, a child costs a fifth of what it costs from the client.
        return cache(self.counter(name, text, *labels).labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Callable[..., Histogram]:
        return cache(Histogram(name, text, labels, registry=self.registry, buckets=buckets).labels)


class _Closed:
    """Names of a known set; any other is "other"."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def name(self, given: str) -> str:
        return given if given in self._names else OTHER


class _Bounded:
    """The first `most` names that turn up; any other is "other"."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()

    def name(self, given: str) -> str:
        if given in self._names:
            return given
        if len(self._names) >= self._most or len(given) > 200:
            return OTHER
        self._names.add(given)
        return given


def status_class(status: int | None) -> str:
    """The label for an HTTP status: 2xx, or none where nothing was answered."""
    return "none" if status is None else f"{status // 100}xx"


def _version() -> str:
    try:
        return version("trimtab")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
