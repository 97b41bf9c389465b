"""An OpenTelemetry collector: an endpoint that takes spans over OTLP/HTTP and keeps them."""

import asyncio
import gzip
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

KINDS = {Span.SPAN_KIND_SERVER: "server", Span.SPAN_KIND_CLIENT: "client"}


@dataclass(frozen=True)
class Told:
    """A span as the collector got it."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    failed: bool
    seconds: float
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """An ASGI application; `raw` is every body that came, unpacked."""

    raw: list[bytes] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._take, methods=["POST"])])

    async def spans(self, count: int) -> list[Told]:
        """The spans, as soon as there are `count`."""
        async with asyncio.timeout(8):
            while len(self.told) < count:  # noqa: ASYNC110 - they come from a thread of the exporter's
                await asyncio.sleep(0.01)
        return self.told

    async def _take(self, request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.raw.append(body)
        self.paths.append(request.url.path)
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _plain(batch.resource.attributes)
            self.told += [_told(span, resource) for scope in batch.scope_spans for span in scope.spans]
        return Response(b"", media_type="application/x-protobuf")


def _told(span: Span, resource: dict[str, Any]) -> Told:
    return Told(
        name=span.name,
        kind=KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        failed=span.status.code == 2,
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        attributes=_plain(span.attributes),
        resource=resource,
    )


def _plain(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if which == "array_value" else getattr(value, which)
