"""Every request that is not for trimtab itself: which route takes it, and on it goes, as chat or as it is."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope, Send

from policies import registry
from policies.errors import PolicyError
from policies.types import Policy
from proxy import routes, wire
from proxy.conversations import identity
from proxy.errors import ClientError, ClientGone
from proxy.exchange import Exchange, Parts
from proxy.http import answers, bodies, client, headers, keys, targets
from proxy.http.headers import Headers
from proxy.http.keys import OWN
from proxy.http.presence import Presence
from proxy.matching import Found, Router, fingerprint
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Action, Outcome
from proxy.route import Route
from proxy.upstream import Upstream
from proxy.upstream.learned import learned_key
from proxy.upstream.windows import Windows
from proxy.wire.settings import LONGEST_NAME

if TYPE_CHECKING:
    from proxy.telemetry.tracing import RequestSpan, Tracing

MODEL_BYTES = 1024 * 1024  # a JSON body that is not chat is read for its model up to this size
PEEK_INLINE_BYTES = 1024 * 1024  # a larger body is looked into on a thread

ASK_BYTES = 4096  # a smaller body fits any window that is worth asking for

SHOWN = 100  # characters of a header's value that an error repeats

_INTEGER = re.compile(r" *[+-]?[0-9]{1,18} *")
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_DEPLOYMENT = re.compile(rf"/deployments/([^/]{{1,{LONGEST_NAME}}})/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a client's own headers ask of trimtab."""

    bypass: bool
    pins: tuple[int, ...]
    policy: Policy | None
    budget: int | None


_NOTHING = Asked(bypass=False, pins=(), policy=None, budget=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a body says of itself; without a `peek` it is passed on as it came, for `reason`."""

    model: str | None = None
    peek: wire.Peek | None = None
    reason: str | None = None


class Gateway:
    """The ASGI endpoint behind every path that trimtab does not keep for itself."""

    def __init__(
        self,
        router: Router,
        upstreams: Mapping[str, Upstream],
        windows: Windows,
        parts: Parts,
        *,
        max_body_bytes: int,
    ) -> None:
        self._router = router
        self._upstreams = upstreams
        self._windows = windows
        self._parts = parts
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, by its upstream's words or in OpenAI's error shape."""
        if scope["type"] == "websocket":
            await answers.refuse_websocket(scope.get("extensions", {}), send)
            return
        try:
            if scope["method"] == "POST" and scope["path"].endswith("/chat/completions"):
                if self._parts.tracing is None:
                    await self._chat(scope, receive, send)
                else:
                    await self._traced(self._parts.tracing, scope, receive, send)
            else:
                await self._other(scope, receive, send)
        except ClientError as error:
            await answers.failure(error)(scope, receive, send)
        except ClientGone:
            return

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request through untouched."""
        model, receive = await self._model(scope["headers"], receive)
        found = self._router.find_other(scope["path"], model, *self._told(scope["headers"]))
        keys.permit(scope, found.route.name)
        upstream, on_end = self._upstreams[found.route.upstream], partial(self._parts.metrics.passed, found.route.name)
        await routes.passthrough(upstream, _target(scope, found), scope, receive, send, on_end=on_end)

    async def _model(self, fields: Headers, receive: Receive) -> tuple[str | None, Receive]:
        """The model of a JSON body of a known, moderate length, and a `receive` that gives the body again."""
        length = headers.first(fields, b"content-length") or b""
        if not (self._router.asks_model and length.isdigit() and len(length) < 8 and int(length) <= MODEL_BYTES):
            return None, receive
        if b"json" not in (headers.first(fields, b"content-type") or b""):
            return None, receive
        body = await bodies.read(receive, MODEL_BYTES)
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await receive()

        return wire.peek_model(body), again

    async def _traced(self, tracing: "Tracing", scope: Scope, receive: Receive, send: Send) -> None:
        span = tracing.begin(scope["headers"])
        try:
            await self._chat(scope, receive, send, span)
        except ClientError as error:
            span.refused(error.code, error.status)
            raise
        except ClientGone:
            raise
        except Exception as error:
            span.failed(type(error).__name__)
            raise
        finally:
            span.close()

    async def _chat(self, scope: Scope, receive: Receive, send: Send, span: "RequestSpan | None" = None) -> None:
        """Trim a chat request as its route says and relay the answer."""
        # In a method of its own, so that no frame keeps the body for as long as the answer takes.
        exchange, outcome = await self._decided(scope, receive, span)
        await exchange.relay(outcome, scope, receive, send)

    async def _decided(self, scope: Scope, receive: Receive, span: "RequestSpan | None") -> tuple[Exchange, Outcome]:
        """Read a chat request, and decide what is sent of it."""
        fields: Headers = scope["headers"]
        raw = await bodies.read(receive, self._max_body_bytes, fields)
        coding = headers.text(fields, b"content-encoding")
        decoded = await bodies.decode_aside(raw, coding, self._max_body_bytes)
        body = decoded.body if isinstance(decoded, bodies.Decoded) else None
        seen = await self._look(body)
        model = seen.model
        if model is None and (named := _DEPLOYMENT.search(scope["path"])):
            model = named[1]
        found = self._find(scope, model, readable=seen.peek is not None)
        keys.permit(scope, found.route.name)
        asked = _asked(fields, found.route)
        upstream = self._upstreams[found.route.upstream]
        if span is not None:
            span.about(found.route.name, model, upstream.place)
        tenant = identity.tenant(fields, found.route.tenant_header)
        key = learned_key(found.route.name, model, tenant)
        incoming = Incoming(
            route=found.route,
            body=raw if body is None else body,
            peek=seen.peek,
            model=model,
            pins=asked.pins,
            policy=asked.policy,
            budget=asked.budget,
            tenant=tenant,
            session=headers.text(fields, b"x-trimtab-session") or None,
            learned=self._parts.learned.window(key),
        )
        try:
            async with Presence(receive, client.of(scope)):
                outcome = await self._decide(incoming, asked, upstream, fields)
                outcome.reason = outcome.reason or seen.reason
        except ClientError as error:
            self._record_refusal(found.route, model, error)
            raise
        return Exchange(self._parts, upstream, _target(scope, found), incoming, raw, key, span), outcome

    async def _look(self, body: bytes | None) -> _Look:
        if body is None:
            return _Look(reason="unknown_encoding")
        if len(body) > PEEK_INLINE_BYTES:
            return await asyncio.to_thread(self._look_now, body)
        return self._look_now(body)

    def _look_now(self, body: bytes) -> _Look:
        try:
            peek = self._parts.pipeline.peek(body)
        except wire.NotChat as error:
            return _Look(model=wire.peek_model(body), reason=error.reason.value)
        return _Look(model=peek.model, peek=peek)

    def _find(self, scope: Scope, model: str | None, *, readable: bool) -> Found:
        """The route of a chat request; one that cannot be read goes where its path and headers send it."""
        texts, key = self._told(scope["headers"])
        if not readable and model is None:
            return self._router.find_other(scope["path"], None, texts, key)
        found = self._router.find(scope["path"], model, texts, key)
        if found is None:
            names = ", ".join(self._router.names)
            raise ClientError(
                404, "no_route", f"No route takes path {scope['path']!r} with model {model!r}. Routes: {names}."
            )
        return found

    def _told(self, fields: Headers) -> tuple[Mapping[str, str], str | None]:
        """The header fields and the key's fingerprint, as far as any route asks for them."""
        texts = _texts(fields) if self._router.asks_headers else _NO_TEXTS
        return texts, _key(fields) if self._router.asks_key else None

    async def _decide(self, incoming: Incoming, asked: Asked, upstream: Upstream, fields: Headers) -> Outcome:
        if asked.bypass or incoming.peek is None:
            outcome = self._parts.pipeline.untouched(incoming)
            outcome.action = Action.BYPASS if asked.bypass else Action.PASS
            return outcome
        if len(incoming.body) >= ASK_BYTES:
            await self._windows.learn(incoming.route, incoming.model, upstream, fields)
        return await self._parts.pipeline.run(incoming)

    def _record_refusal(self, route: Route, model: str | None, error: ClientError) -> None:
        self._parts.metrics.refused(route.name, error.code)
        self._parts.audit.put(
            {
                "event": "refused",
                "route": route.name,
                "model": model,
                "code": error.code,
                "status": error.status,
                "reason": error.message,
            },
            error=error.code == "context_length_exceeded",
        )


def _target(scope: Scope, found: Found) -> bytes:
    prefix = scope["path"][: len(scope["path"]) - len(found.path)] if found.path != "/" else scope["path"]
    return targets.of(scope, prefix)


def _texts(fields: Headers) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}


def _key(fields: Headers) -> str | None:
    """The fingerprint of the key that a request carries."""
    bearer = headers.text(fields, b"authorization")
    key = (
        bearer[7:] if bearer[:7].lower() == "bearer " else headers.text(fields, b"api-key") or headers.text(fields, OWN)
    )
    return fingerprint(key) if key else None


def _asked(fields: Headers, route: Route) -> Asked:
    """What the request's x-trimtab headers ask for.

    Raises:
        ClientError: 400 invalid_header, naming the header and what would do, where one cannot be understood.
    """
    if not any(name.startswith(headers.OWN_PREFIX) for name, _ in fields):
        return _NOTHING
    pins = headers.text(fields, b"x-trimtab-pin")
    policy = headers.text(fields, b"x-trimtab-policy") if route.allow_overrides else ""
    budget = headers.text(fields, b"x-trimtab-budget") if route.allow_overrides else ""
    wanted = ""
    try:
        wanted = f"x-trimtab-pin: must be message indexes such as 0,3,-2, got {pins[:SHOWN]!r}"
        indexes = tuple(_integer(index) for index in pins.split(",")) if pins else ()
        wanted = f"x-trimtab-policy: must be one of {', '.join(registry.names())}, got {policy[:SHOWN]!r}"
        chosen = registry.create(policy, {}) if policy else None
        wanted = f"x-trimtab-budget: must be a positive number of tokens, got {budget[:SHOWN]!r}"
        tokens = _positive(budget) if budget else None
    except (ValueError, PolicyError):
        raise ClientError(400, "invalid_header", wanted) from None
    bypass = headers.text(fields, b"x-trimtab-bypass").strip().lower()
    return Asked(bypass=bypass in ("1", "true", "yes"), pins=indexes, policy=chosen, budget=tokens)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _positive(text: str) -> int:
    if (number := _integer(text)) < 1:
        raise ValueError(text)
    return number
