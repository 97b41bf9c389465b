"""What a configuration switches on, and what is missing for it, in the few lines that the start says. (pure)"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy import config as configs
from proxy.config.schema import Config, RouteSettings
from proxy.embeddings.sentence import DEFAULT_MODEL
from proxy.embeddings.vectors import wanting
from proxy.stores import urls
from proxy.telemetry import opening

OPEN_HOSTS = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Line:
    """One event of the log: `warns` where something is missing."""

    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    warns: bool = False


def summary(config: Config, environ: Mapping[str, str], *, workers: int, host: str) -> Iterator[Line]:
    """Routes in the order in which they are tried, upstreams, state, audit, vectors, traces, keys."""
    for settings in config.routes:
        yield Line("route", dict(_route(settings)))
    for name, upstream in config.upstreams.items():
        key = "the client's" if upstream.api_key_env is None else f"from {upstream.api_key_env}"
        yield Line("upstream", {"name": name, "address": upstream.base_url, "key": key})
    yield Line("state", {"in": urls.masked(config.state), "workers": workers})
    audit = config.audit
    yield Line("audit", {"lines": list(audit.path), "store": audit.store or "none", "content": audit.content})
    if audit.content:
        yield Line("audit_has_content", {"why": "audit.content is on: records quote what clients wrote"}, warns=True)
    for problem in configs.audit_apart(config, workers):
        yield Line("audit_apart", {"why": problem}, warns=True)
    yield from _vectors(config)
    yield from _traces(config, environ)
    yield from _keys(config, host)


def _route(settings: RouteSettings) -> Iterator[tuple[str, object]]:
    yield "name", settings.name
    match = settings.match
    conditions = {"path": None if match.path == "/" else match.path, "model": match.model, "key": match.key}
    conditions |= {f"header {name}": glob for name, glob in match.header.items()}
    yield "takes", ", ".join(f"{name} {value}" for name, value in conditions.items() if value) or "everything"
    yield "upstream", settings.upstream
    if settings.experiment is None:
        yield "policy", settings.policy.name
    else:
        yield "experiment", dict(settings.experiment)
    yield "mode", settings.mode.value
    if settings.window is not None:
        yield "window", settings.window


def _vectors(config: Config) -> Iterator[Line]:
    using = wanting(configs.routes(config))
    if not using:
        return
    source = configs.vectors(config)
    if source.missing is not None:
        yield Line("relevance_by_words_alone", {"routes": list(using), "why": source.missing}, warns=True)
        return
    model = source.model or DEFAULT_MODEL
    yield Line("embeddings", {"by": source.upstream or source.backend, "model": model, "routes": list(using)})


def _traces(config: Config, environ: Mapping[str, str]) -> Iterator[Line]:
    traces = configs.traces(config)
    if not opening.asked_for(traces, environ):
        return
    if (why := opening.missing(traces, environ)) is not None:
        yield Line("no_traces", {"why": why}, warns=True)
    else:
        yield Line("traces", {"to": urls.masked(opening.goes_to(traces, environ))})


def _keys(config: Config, host: str) -> Iterator[Line]:
    if config.keys:
        yield Line("keys", {"for": [key.name for key in config.keys]})
    elif host not in OPEN_HOSTS:
        why = f"no keys are set and {host} may be reached from elsewhere: whoever reaches it may ask, and see /trimtab/"
        yield Line("open_to_all", {"why": why}, warns=True)
