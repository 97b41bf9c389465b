"""Whether requests are traced: what settings and OpenTelemetry's variables say together, and what is missing."""

import sys

import pytest

from proxy.telemetry.opening import Traces, asked_for, goes_to, missing, open_tracing

HERE = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("traces", "environ", "expected"),
    [
        (Traces(), {}, False),
        (Traces(), {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, True),
        (Traces(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{HERE}/v1/traces"}, True),
        (Traces(), {"OTEL_TRACES_EXPORTER": "otlp"}, True),
        (Traces(), {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
        (Traces(), {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
        (Traces(wanted=True), {}, True),
        (Traces(wanted=True), {"OTEL_SDK_DISABLED": "TRUE"}, False),
        (Traces(endpoint=HERE), {}, True),
        (Traces(wanted=False, endpoint=HERE), {"OTEL_EXPORTER_OTLP_ENDPOINT": HERE}, False),
    ],
)
def test_who_asks_for_traces(traces: Traces, environ: dict[str, str], expected: bool) -> None:
    assert asked_for(traces, environ) is expected
    assert (open_tracing(traces, {} if expected else environ).tracing is None) or expected


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf, got 'grpc'"),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: must be http/protobuf, got 'http/json'",
        ),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: must be otlp or none, got 'zipkin'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, None),
    ],
)
def test_what_cannot_be_done_is_said(environ: dict[str, str], why: str | None) -> None:
    assert missing(Traces(wanted=True), environ) == why
    if why is not None:
        assert open_tracing(Traces(wanted=True), environ).tracing is None


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto", None)

    opened = open_tracing(Traces(endpoint=HERE), {})

    assert opened.tracing is None
    assert opened.missing == "trimtab[otel] is not installed"
    assert open_tracing(Traces(), {}).missing is None, "who does not ask for it misses nothing"


def test_the_address_that_is_used_is_the_one_that_is_told() -> None:
    variable = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}

    assert goes_to(Traces(endpoint=HERE), variable) == HERE
    assert goes_to(Traces(), variable) == "http://collector:4318"
    assert goes_to(Traces(wanted=True), {}) == "http://localhost:4318"
