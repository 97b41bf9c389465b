"""One chat request on its way: sent, sent once more if it was too long, relayed, and written down when it ends."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.types import Receive, Scope, Send

from proxy.audit import Audit
from proxy.errors import ClientError, ClientGone, UpstreamError
from proxy.guard import Faults
from proxy.http import answers, client, headers
from proxy.http.presence import Presence
from proxy.metrics import Metrics
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Action, Outcome
from proxy.route import Mode
from proxy.streaming import Reader, Reading
from proxy.upstream import Reply, Upstream
from proxy.upstream.learned import Key, Learned
from proxy.upstream.overflow_errors import Kind, Refusal, classify, classify_event
from proxy.upstream.relay import End, Relay

if TYPE_CHECKING:
    from proxy.telemetry.tracing import RequestSpan, Tracing

ERROR_BYTES = 64 * 1024  # of an upstream's error, what is looked at before it is relayed
SHORTFALL = 1000  # tokens; of a short prompt no shortfall says much
ERROR_S = 2.0  # how long its first bytes are waited for
_ERROR_NAME = re.compile(r"(?=.{1,64}\Z)([A-Za-z]+([_.-][A-Za-z]+)*|[0-9]+)")  # words or a number: no key looks so
TRUNCATED = 0.6  # an upstream that counted less than this share of what was sent took only a part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What audit records hold besides the decision: every slot, and the slots' texts; of `most` slots at the most."""

    everything: bool = False
    content: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What every exchange of a worker uses; without `tracing`, requests have no spans."""

    pipeline: Pipeline
    learned: Learned
    audit: Audit
    metrics: Metrics
    recording: Recording
    tracing: "Tracing | None" = None


class Exchange:
    """A chat request and its upstream; `raw` is the body as the client sent it, `key` is who learns from it."""

    def __init__(
        self,
        parts: Parts,
        upstream: Upstream,
        target: bytes,
        incoming: Incoming,
        raw: bytes,
        key: Key,
        span: "RequestSpan | None" = None,
    ) -> None:
        self._parts = parts
        self._upstream = upstream
        self._target = target
        self._incoming = incoming
        self._raw = raw
        self._key = key
        self._span = span

    async def relay(self, outcome: Outcome, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what `outcome` says, and relay the answer; the client always gets one."""
        current = outcome
        try:
            async with Presence(receive, client.of(scope)):
                reply = await self._send(current, scope)
                if reply.status >= 400 and (again := await self._again(current, reply)) is not None:
                    await reply.aclose()
                    current = again
                    reply = await self._send(current, scope)
        except UpstreamError as error:
            self._finish(current, End.of(error), None, 504 if error.code == "upstream_timeout" else 502)
            await answers.failure(error, current.headers())(scope, receive, send)
            return
        except ClientGone:
            self._finish(current, End.CLIENT_GONE, None, None)
            raise
        except BaseException:
            self._finish(current, End.CANCELLED, None, None)
            raise
        await self._hand_on(reply, current, scope, receive, send)

    async def _hand_on(self, reply: Reply, outcome: Outcome, scope: Scope, receive: Receive, send: Send) -> None:
        self._sent(outcome)
        reader = Reader(headers.text(reply.headers, b"content-type"), headers.text(reply.headers, b"content-encoding"))
        relay = Relay(
            reply,
            extra=outcome.headers(),
            on_chunk=reader.feed,
            on_end=lambda end: self._finish(outcome, end, reader, reply.status),
            client=client.of(scope),
        )
        await relay(scope, receive, send)

    async def _send(self, outcome: Outcome, scope: Scope) -> Reply:
        body = outcome.body if outcome.changed else self._raw
        fields = scope["headers"]
        if self._span is not None:
            fields = self._span.asking(fields, self._upstream.place)
        reply = await self._upstream.send(scope["method"], self._target, fields, body, changed=outcome.changed)
        if self._span is not None:
            self._span.answered(reply.status)
        return reply

    def _sent(self, outcome: Outcome) -> None:
        """Let go of what is not needed again: nothing is sent a second time once an answer is handed on."""
        self._raw, outcome.body = b"", b""
        self._incoming = replace(self._incoming, body=b"", peek=None)

    async def _again(self, outcome: Outcome, reply: Reply) -> Outcome | None:
        """What to send instead, where the upstream says that the prompt was too long and trimming can help."""
        faults = Faults()
        with faults.guard("retry", UpstreamError):
            try:
                async with asyncio.timeout(ERROR_S):
                    said = await reply.peek(ERROR_BYTES)
            except TimeoutError:
                return None
            refusal = classify(reply.status, reply.headers, said)
            if refusal is None:
                return None
            outcome.refused = refusal.kind.value
            self._learn(refusal)
            if outcome.action is Action.BYPASS or self._incoming.route.mode is not Mode.ENFORCE:
                return None
            try:
                return await self._parts.pipeline.retry(self._incoming, outcome, refusal)
            except ClientError:
                return None  # even so it does not fit: the upstream's own words say it best
        outcome.faults += faults.names
        return None

    def _learn(self, refusal: Refusal) -> None:
        if refusal.kind is Kind.CONTEXT and refusal.limit is not None:
            self._parts.learned.note(self._key, refusal.limit)

    def _finish(self, outcome: Outcome, end: End, reader: Reader | None, status: int | None) -> None:
        """End the turn, learn from what the upstream said, and write the audit record."""
        if outcome.turn is not None:
            outcome.turn.release()
        if outcome.after is not None:
            with Faults().guard("afterwards"):
                outcome.after()
        reading = None
        if reader is not None:
            with Faults().guard("reading"):
                reading = reader.result()
        whole = reading is not None and reading.done and not reading.truncated and reading.error is None
        if outcome.prepare is not None:
            with Faults().guard("preparation"):
                outcome.prepare(reading.message if reading is not None and whole else None)
        truncated = False
        if reading is not None and status is not None:
            with Faults().guard("learning"):
                truncated = self._learn_from(outcome, reading, status)
        told = self._parts.recording
        record = outcome.record(everything=told.everything, content=told.content, most=told.most)
        done = end is End.EOF and reading is not None and reading.done
        record |= {"status": status, "stream_end": End.DONE.value if done else end.value}
        record |= {"upstream_truncated": truncated, **_said(reading)}
        self._parts.audit.put(record, error=outcome.alarming or truncated)
        self._parts.metrics.turn(outcome, end, reading, status, truncated=truncated)
        if self._span is not None:
            with Faults().guard("tracing"):
                self._span.end(record)
        outcome.over()

    def _learn_from(self, outcome: Outcome, reading: Reading, status: int) -> bool:
        """Learn from usage and errors; True if the upstream silently took only a part of the prompt."""
        if status < 400 and reading.error is not None and (refusal := classify_event(reading.error)) is not None:
            outcome.refused = refusal.kind.value
            self._learn(refusal)
        sent = outcome.tokens_after if outcome.changed else outcome.tokens_before
        if reading.usage is None or not sent:
            return False
        actual = reading.usage.prompt_tokens
        if outcome.teach is not None:
            cut = outcome.teach(actual)
        else:
            cut = 0 < actual < TRUNCATED * sent and sent - actual > SHORTFALL
        if cut:
            self._parts.learned.note_truncated(self._key, actual)
            return True
        self._parts.learned.note_accepted(self._key, actual)
        return False


def _error_name(error: object) -> str | None:
    """The code of an upstream's error, else its type; never its words, which may quote the prompt."""
    if error is None:
        return None
    fields = error if isinstance(error, dict) else {}
    names = (str(fields.get(key)) for key in ("code", "type", "status"))
    return next((name for name in names if _ERROR_NAME.fullmatch(name) and name != "None"), "error")


def _said(reading: Reading | None) -> Mapping[str, Any]:
    """What the reply said of itself, without its content."""
    if reading is None:
        return {"finish_reason": None, "usage": None, "error": None}
    usage = reading.usage
    counted = usage and {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    return {"finish_reason": reading.finish_reasons.get(0), "usage": counted, "error": _error_name(reading.error)}
