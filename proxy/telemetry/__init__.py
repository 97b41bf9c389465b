"""Traces over OpenTelemetry, with `trimtab[otel]`: a span for each chat request, `traceparent` continued both ways.

Off, nothing of it is imported, and a client's own `traceparent` goes through like any other header.
"""
