"""What the dashboard's page asks for, as JSON: sums of a period, decisions, conversations."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from policies import registry
from proxy.audit.figures import Figures
from proxy.audit.query import Decisions, Filter
from proxy.audit.store import AuditStore
from proxy.dashboard.pages import HEADERS
from proxy.errors import ClientError
from proxy.http import answers
from proxy.route import Route

SPANS = 60  # points of a series
LONGEST_S = 31 * 86_400
LIST = 50
POINTS = 500  # requests of one conversation

_EQUAL = ("route", "model", "conversation", "policy", "action", "level")
_OWN = frozenset({*_EQUAL, "span", "before", "limit"})

Work = Callable[[Decisions], Any]


class Api:
    """Answers from the audit store, each question on a thread. Texts are given only where `content` is on.

    `health` tells how the worker is doing; `now` is in seconds since the epoch.
    """

    def __init__(
        self,
        store: AuditStore | None,
        routes: Sequence[Route],
        *,
        content: bool,
        health: Callable[[], Mapping[str, object]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._routes = routes
        self._content = content
        self._health = health
        self._now = now
        self._figures = Figures()

    def warm(self) -> None:
        """Read what an earlier proxy has left, before anybody asks; what fails will fail again where it is told."""
        if self._store is not None:
            with suppress(sqlite3.Error), self._store.reading() as decisions:
                self._figures.refresh(decisions)

    async def overview(self, request: Request) -> Response:
        """`?span=3600&route=…`: how the worker is doing, and what the last `span` seconds come to."""
        return await self._answered(request, self._overview)

    async def decisions(self, request: Request) -> Response:
        """`?route=…&action=…&before=ROW&limit=50`: decisions, the newest first."""

        def listed(decisions: Decisions, asked: QueryParams) -> Any:
            before = _number(asked, "before", None)
            rows = decisions.newest(self._filter(asked), limit=_number(asked, "limit", LIST) or LIST, before=before)
            return {"decisions": rows}

        return await self._answered(request, listed)

    async def decision(self, request: Request) -> Response:
        """One record, whole, and the decisions that it replays."""

        def one(decisions: Decisions, _: QueryParams) -> Any:
            found = decisions.records(request.path_params["id"])
            if len(found) != 1:
                raise ClientError(404, "no_decision", "No decision that is kept has this id alone")
            past = [asdict(each) for each in decisions.history(found[0])]
            return {**(found[0] if self._content else _silent(found[0])), "history": past}

        return await self._answered(request, one)

    async def conversations(self, request: Request) -> Response:
        """Conversations, the latest first."""

        def listed(decisions: Decisions, asked: QueryParams) -> Any:
            return {"conversations": decisions.conversations(self._filter(asked), limit=LIST)}

        return await self._answered(request, listed)

    async def conversation(self, request: Request) -> Response:
        """The latest requests of one conversation, in order."""

        def one(decisions: Decisions, _: QueryParams) -> Any:
            which = Filter(conversation=request.path_params["id"])
            rows = decisions.newest(which, limit=POINTS)[::-1]
            if not rows:
                raise ClientError(404, "no_conversation", "No decision that is kept is of this conversation")
            return {"conversation": request.path_params["id"], "route": rows[-1]["route"], "decisions": rows}

        return await self._answered(request, one)

    def _overview(self, decisions: Decisions, asked: QueryParams) -> Any:
        span = min(_number(asked, "span", 3600) or 3600, LONGEST_S)
        now, step = self._now(), max(1.0, span / SPANS)
        start = now - span
        which = self._filter(asked, since=start)
        self._figures.refresh(decisions)
        figures = self._figures
        everything = next(iter(figures.totals(which)), None)
        return {
            "now": now,
            "span": span,
            "step": step,
            "start": start,
            "health": self._health(),
            "content": self._content,
            "policies": registry.names(),
            "routes": [described(route) for route in self._routes],
            "totals": everything and asdict(everything),
            "by_route": [asdict(each) for each in figures.totals(which, by="route")],
            "by_policy": [asdict(each) for each in figures.totals(which, by="policy")],
            "series": [
                {"at": at, **asdict(each)} for at, each in figures.series(which, start=start, step=step, spans=SPANS)
            ],
            "latest": decisions.newest(which, limit=10),
        }

    def _filter(self, asked: QueryParams, since: float | None = None) -> Filter:
        equal: dict[str, Any] = {name: asked.get(name) or None for name in _EQUAL}
        return Filter(**equal, since=since)

    async def _answered(self, request: Request, work: Callable[[Decisions, QueryParams], Any]) -> Response:
        try:
            for name in request.query_params:
                if name not in _OWN:
                    known = ", ".join(sorted(_OWN))
                    raise ClientError(
                        400, "invalid_parameter", f"no parameter is called {name[:100]!r}; known: {known}"
                    )
            if self._store is None:
                message = "No decisions are kept: audit.store is null. Set it to memory:// or sqlite:///audit.db"
                raise ClientError(404, "audit_store_off", message)
            found = await asyncio.to_thread(self._read, self._store, lambda each: work(each, request.query_params))
        except ClientError as error:
            response = answers.failure(error)
            response.headers.update(_HEADERS)
            return response
        return Response(msgspec.json.encode(found), headers=_HEADERS, media_type="application/json")

    def _read(self, store: AuditStore, work: Work) -> Any:
        try:
            with store.reading() as decisions:
                return work(decisions)
        except sqlite3.Error as error:
            raise ClientError(503, "audit_store_failed", f"The audit store does not answer: {error}") from None


_HEADERS = {**HEADERS, "cache-control": "no-store"}


def described(route: Route) -> dict[str, object]:
    """What the page says of a route."""
    return {
        "name": route.name,
        "upstream": route.upstream,
        "policies": [policy.name for policy in route.policies],
        "mode": route.mode.value,
        "thresholds": asdict(route.thresholds),
        "targets": asdict(route.targets),
    }


def _silent(record: dict[str, Any]) -> dict[str, Any]:
    """The record without the texts that it may have had when it was written."""
    slots = record.get("slots") or ()
    return {**record, "slots": [{key: slot[key] for key in slot if key != "text"} for slot in slots]}


def _number(asked: QueryParams, name: str, otherwise: int | None) -> int | None:
    given = asked.get(name)
    if given is None:
        return otherwise
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise ClientError(400, "invalid_parameter", f"{name}: must be a whole number, got {given[:100]!r}", name)
    return int(given)
