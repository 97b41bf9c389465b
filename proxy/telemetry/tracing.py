"""The spans of chat requests: one for the request itself, and in it one for each time that its upstream was asked.

The request's span continues the client's trace (W3C Trace Context, https://www.w3.org/TR/trace-context/), and the
upstream is told of the one in which it was asked. Spans are exported in lots, on a thread of the SDK's own.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy.http import headers
from proxy.http.headers import Headers
from proxy.telemetry import attributes
from proxy.upstream import Place

CLOSING_S = 2.0  # for the last spans to get to the collector
GIVING_UP_S = 1.0
CHAT = "chat"  # the operation, as the conventions for generative AI call it

_FIELDS = (b"traceparent", b"tracestate")
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Begins the spans of a worker's requests; `provider` has them exported by `exporter`, and both are closed."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter) -> None:
        self._provider = provider
        self._exporter = exporter
        self._tracer = provider.get_tracer("trimtab")

    def begin(self, fields: Headers) -> "RequestSpan":
        """The span of a request that has just begun to arrive with these header fields."""
        return RequestSpan(self._tracer, _propagator.extract(_carried(fields)), time.time_ns())

    def close(self) -> None:
        """Export what waits, and stop: within 3 seconds, though the SDK would go on trying for ten or more."""
        closing = threading.Thread(target=self._provider.shutdown, name="trimtab-traces", daemon=True)
        closing.start()
        closing.join(CLOSING_S)
        if closing.is_alive():
            self._exporter.shutdown()  # wakes it where it waits for its next attempt
            closing.join(GIVING_UP_S)


class RequestSpan:
    """One chat request; begun in the SDK when its route and model are known, since samplers may ask for them."""

    def __init__(self, tracer: Tracer, parent: Context, start_ns: int) -> None:
        self._tracer = tracer
        self._parent = parent
        self._start_ns = start_ns
        self._span: Span | None = None
        self._attempt: Span | None = None
        self._attempts = 0
        self._ended = False

    def about(self, route: str | None, model: str | None, place: Place | None = None) -> None:
        """What is asked for, and of whom."""
        named = None if model is None else model[: attributes.LONGEST]
        found: dict[str, attributes.Value] = {attributes.OPERATION: CHAT, "http.request.method": "POST"}
        if named is not None:
            found[attributes.MODEL] = named
        if route is not None:
            found[attributes.ROUTE] = route
        if place is not None:
            found[attributes.PROVIDER] = attributes.provider(place.host, place.name)
        self._span = self._tracer.start_span(
            f"{CHAT} {named}" if named else CHAT,
            context=self._parent,
            kind=SpanKind.SERVER,
            attributes=found,
            start_time=self._start_ns,
        )

    def asking(self, fields: Headers, place: Place) -> list[tuple[bytes, bytes]]:
        """The fields as the upstream is to get them: it is asked now, for the first time or once more."""
        self._settle()
        found: dict[str, attributes.Value] = {
            "http.request.method": "POST",
            "server.address": place.host,
            "server.port": place.port,
        }
        if self._attempts:
            found["http.request.resend_count"] = self._attempts
        self._attempts += 1
        self._attempt = self._tracer.start_span("POST", context=self._within(), kind=SpanKind.CLIENT, attributes=found)
        told: dict[str, str] = {}
        _propagator.inject(told, set_span_in_context(self._attempt, self._parent))
        onward = [(name, value) for name, value in fields if name not in _FIELDS]
        return [*onward, *((name.encode(), value.encode("latin-1")) for name, value in told.items())]

    def answered(self, status: int) -> None:
        """The upstream answered, its body still to come."""
        if self._attempt is not None:
            self._attempt.set_attribute(attributes.STATUS, status)
            if status >= 400:
                self._fail(self._attempt, str(status))

    def refused(self, code: str, status: int) -> None:
        """The proxy answered by itself, with an error of its own."""
        if self._span is None:
            self.about(None, None)
        self.end({"status": status, "error": code})

    def failed(self, kind: str) -> None:
        """The proxy itself failed, by an error of this kind, which is answered with 500."""
        self.refused(kind, 500)

    def end(self, record: Mapping[str, Any]) -> None:
        """The turn has ended, and this is its audit record."""
        if self._ended or self._span is None:
            return
        self._ended = True
        failed = attributes.failure(record)
        if self._attempt is not None and failed is not None and record.get("stream_end") != "done":
            self._fail(self._attempt, failed)
        self._settle()
        self._span.set_attributes(attributes.of(record))
        if failed is not None:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def close(self) -> None:
        """Nothing follows: a request whose client left before anything was decided ends here."""
        self.end({"stream_end": "client_gone"})

    def _within(self) -> Context:
        return self._parent if self._span is None else set_span_in_context(self._span, self._parent)

    def _settle(self) -> None:
        if self._attempt is not None:
            self._attempt.end()
            self._attempt = None

    def _fail(self, span: Span, kind: str) -> None:
        span.set_attribute(attributes.ERROR, kind)
        span.set_status(Status(StatusCode.ERROR))


def _carried(fields: Headers) -> dict[str, str]:
    return {name.decode(): value for name in _FIELDS if (value := headers.text(fields, name))}
