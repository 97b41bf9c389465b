"""What would be done to a chat request, by which policy and under which budget. Nothing is sent and nothing is kept."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from policies import registry
from policies.errors import PolicyError
from policies.types import Policy
from proxy import wire
from proxy.errors import ClientError, ClientGone
from proxy.http import answers, bodies, headers
from proxy.http.patience import Patience
from proxy.matching import Router
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.route import Mode, Route
from proxy.tokens import counter, media

MOST = 8  # previews of one request
PARAMETERS = ("route", "policy", "budget", "window")
SHOWN = 100  # characters of a value that an error repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One preview that is asked for; `budget` and `window` in tokens, None: the route's."""

    policy: Policy
    budget: int | None = None
    window: int | None = None


class Preview:
    """`POST /trimtab/preview?policy=priority&policy=fifo&budget=8000`: a chat body in, audit records out.

    Each policy is combined with each budget; without any, what the route would do is shown. `route` names a route,
    else the one is taken that takes the request. `pipeline` must have no conversations, and embeddings only if they
    are made on this machine.
    """

    def __init__(
        self, pipeline: Pipeline, router: Router, executor: Executor, *, max_body_bytes: int, read_timeout_s: float
    ) -> None:
        self._pipeline = pipeline
        self._router = router
        self._executor = executor
        self._max_body_bytes = max_body_bytes
        self._read_timeout_s = read_timeout_s

    async def __call__(self, request: Request) -> Response:
        """The answer to a request, or an error in OpenAI's shape that says what is wrong with it."""
        try:
            fields = request.scope["headers"]
            receive = Patience(request.receive, self._read_timeout_s)
            raw = await bodies.read(receive, self._max_body_bytes, fields)
            coding = headers.text(fields, b"content-encoding")
            decoded = await bodies.decode_aside(raw, coding, self._max_body_bytes)
            if not isinstance(decoded, bodies.Decoded):
                raise ClientError(415, "unknown_encoding", f"content-encoding: cannot be read, got {coding[:SHOWN]!r}")
            work = asyncio.get_running_loop().run_in_executor(
                self._executor, self._answer, decoded.body, request.query_params, dict(request.headers)
            )
            return Response(msgspec.json.encode(await work), media_type="application/json")
        except ClientError as error:
            return answers.failure(error)
        except ClientGone:
            return Response(status_code=499)

    def _answer(self, body: bytes, asked: QueryParams, fields: dict[str, str]) -> dict[str, Any]:
        try:
            chat = wire.parse(body)
        except wire.NotChat as error:
            message = f"The body is no chat request: {error.reason.value}. It needs `model` and `messages`, as JSON."
            raise ClientError(400, "not_chat", message) from None
        route = self._route(asked, chat.settings.model, fields)
        counted = counter(chat.settings.model)
        return {
            "route": route.name,
            "model": chat.settings.model,
            "tokenizer": counted.name,
            "estimated": counted.estimated or any(media.guessed(part) for m in chat.messages for part in m.parts),
            "overhead_tokens": counted.overhead(chat.settings),
            "messages": [
                {"index": index, "role": message.role, "tokens": counted.message(message)}
                for index, message in enumerate(chat.messages)
            ],
            "previews": [self._preview(body, route, wish) for wish in wishes(asked, route)],
        }

    def _preview(self, body: bytes, route: Route, wish: Wish) -> dict[str, Any]:
        shown = replace(route, mode=Mode.ENFORCE, window=wish.window or route.window)
        incoming = Incoming(route=shown, body=body, policy=wish.policy, budget=wish.budget)
        try:
            record = self._pipeline.settle(incoming).record(everything=True)
        except ClientError as error:
            return {"policy": wish.policy.name, "error": {"code": error.code, "message": error.message}}
        return {**record, "event": "preview", "audit_id": None}

    def _route(self, asked: QueryParams, model: str | None, fields: dict[str, str]) -> Route:
        _known(asked)
        routes = [route for _, route in self._router.entries]
        if (name := asked.get("route")) is not None:
            for route in routes:
                if route.name == name:
                    return route
            raise _invalid("route", f"one of {', '.join(self._router.names)}", name)
        found = self._router.find("/v1/chat/completions", model, fields, None)
        return found.route if found is not None else routes[0]


def wishes(asked: QueryParams, route: Route) -> list[Wish]:
    """The previews that a query asks for, on a route.

    Raises:
        ClientError: 400 invalid_parameter, naming the parameter and what would do.
    """
    policies = [_policy(name, route) for name in asked.getlist("policy")] or list(route.policies)
    budgets: Sequence[int | None] = [_tokens("budget", each) for each in asked.getlist("budget")] or [None]
    window = _tokens("window", asked["window"]) if "window" in asked else None
    if (number := len(policies) * len(budgets)) > MOST:
        raise ClientError(400, "invalid_parameter", f"policy and budget: at most {MOST} together, got {number}")
    return [Wish(policy=policy, budget=budget, window=window) for policy in policies for budget in budgets]


def _policy(name: str, route: Route) -> Policy:
    for policy in (*route.policies, route.policy):
        if policy.name == name:
            return policy  # with the options that the route gives it
    try:
        return registry.create(name, {})
    except PolicyError:
        raise _invalid("policy", f"one of {', '.join(registry.names())}", name) from None


def _tokens(name: str, given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) < 12 and int(given)):
        raise _invalid(name, "a positive number of tokens", given)
    return int(given)


def _known(asked: QueryParams) -> None:
    for name in asked:
        if name not in PARAMETERS:
            message = f"no parameter is called {name[:SHOWN]!r}; known: {', '.join(PARAMETERS)}"
            raise ClientError(400, "invalid_parameter", message)


def _invalid(name: str, wanted: str, given: str) -> ClientError:
    return ClientError(400, "invalid_parameter", f"{name}: must be {wanted}, got {given[:SHOWN]!r}", name)
