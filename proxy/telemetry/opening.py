"""Whether requests are traced and where their spans go: the settings, and what OpenTelemetry's variables say."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.telemetry.tracing import Tracing

EXTRA = "trimtab[otel]"

# https://opentelemetry.io/docs/specs/otel/protocol/exporter/ and .../configuration/sdk-environment-variables/
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTER = "OTEL_TRACES_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"
_HTTP = "http/protobuf"
_EVERYWHERE = "http://localhost:4318"  # the SDK's own default


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Settings: `wanted` None leaves it to the variables; `endpoint` is the collector's address without a path."""

    wanted: bool | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What was made of the settings: `tracing`, or None and `missing`, which says what it would take."""

    tracing: "Tracing | None"
    missing: str | None = None


def asked_for(traces: Traces, environ: Mapping[str, str]) -> bool:
    """Whether spans are to be made."""
    if traces.wanted is False or environ.get(_DISABLED, "").strip().lower() == "true":
        return False
    if traces.wanted or traces.endpoint is not None:
        return True
    if environ.get(_EXPORTER):
        return environ[_EXPORTER].strip().lower() != "none"
    return any(environ.get(name) for name in _ENDPOINTS)


def goes_to(traces: Traces, environ: Mapping[str, str]) -> str:
    """The collector's address, for people."""
    return traces.endpoint or next((environ[name] for name in _ENDPOINTS if environ.get(name)), _EVERYWHERE)


def missing(traces: Traces, environ: Mapping[str, str]) -> str | None:
    """What is missing for the spans that are asked for; None where nothing is, or none are."""
    if not asked_for(traces, environ):
        return None
    exporter, name = environ.get(_EXPORTER, "otlp").strip().lower() or "otlp", _EXPORTER
    if exporter != "otlp":
        return f"{name}: must be otlp or none, got {exporter[:40]!r}"
    for name in _PROTOCOLS:
        if environ.get(name, _HTTP) not in ("", _HTTP):
            return f"{name}: must be {_HTTP}, got {environ[name][:40]!r}"
    try:
        from opentelemetry.exporter.otlp.proto import http  # noqa: F401
        from opentelemetry.sdk import trace  # noqa: F401
    except ImportError:
        return f"{EXTRA} is not installed"
    return None


def open_tracing(traces: Traces, environ: Mapping[str, str]) -> Opened:
    """Start exporting, where that is asked for and possible; the SDK reads its variables from the process itself."""
    if not asked_for(traces, environ):
        return Opened(None)
    if (why := missing(traces, environ)) is not None:
        return Opened(None, why)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from proxy.telemetry.tracing import Tracing

    named = bool(environ.get("OTEL_SERVICE_NAME")) or SERVICE_NAME in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {} if named else {SERVICE_NAME: "trimtab"}
    resource = Resource.create({**own, SERVICE_VERSION: metadata.version("trimtab")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    endpoint = None if traces.endpoint is None else f"{traces.endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=endpoint)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Opened(Tracing(provider, exporter))
