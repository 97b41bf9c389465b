"""The application: parts made from a configuration, opened in order and closed in the opposite one."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, WebSocketRoute
from starlette.routing import Route as Path
from starlette.types import Receive, Scope, Send

from policies import clusters, registry
from policies.types import Need
from proxy import config as configs
from proxy import exchange, tokens
from proxy.audit import Audit, Sinks
from proxy.audit.store import AuditStore
from proxy.config.schema import Config
from proxy.conversations import Conversations
from proxy.conversations.background import Background
from proxy.conversations.recent import ENTRY_OVERHEAD
from proxy.conversations.sealing import Sealer, Secrets, derive
from proxy.conversations.turns import Turns
from proxy.dashboard.api import Api
from proxy.dashboard.routes import Dashboard, to_pages
from proxy.errors import ConfigError
from proxy.gateway import Gateway
from proxy.http import answers, client
from proxy.http.admission import Admission
from proxy.http.door import Door
from proxy.http.front import Front
from proxy.http.patience import Patience
from proxy.http.traffic import Traffic
from proxy.memories import Bounds, together
from proxy.metrics import Metrics
from proxy.metrics.exposition import FOLDER_VARIABLE, Exposition
from proxy.metrics.health import Health
from proxy.metrics.vitals import Vitals
from proxy.pipeline import Pipeline
from proxy.pipeline.evicted import Hooks, installed
from proxy.pipeline.preparation import Preparation
from proxy.preview import Preview
from proxy.recall.ratings import Ratings
from proxy.recall.summaries import UpstreamSummarizer
from proxy.stores.contract import StoreError
from proxy.stores.opening import open_store
from proxy.stores.steady import Limits, SteadyStore
from proxy.telemetry.opening import open_tracing
from proxy.upstream import Upstream
from proxy.upstream.lasting import Lasting
from proxy.upstream.learned import Calibrations, Learned
from proxy.upstream.windows import Windows

BACKGROUND = 64  # requests that wait for a plan to be made ahead, bodies and all
CLOSING_S = 2.0  # for what was cut off to be written down
PREVIEWS = 16  # the share of the memory that is for previews: one in so many bytes
THREADS = 2  # for reading, counting and cutting large bodies
GIANTS = 2  # for those that take so long that others would wait for them
MARK_TTL_S = 60.0
STATE_KEY = b"state key"  # where a store keeps the key that was made for it
WARM = ("gpt-4o", "gpt-4")  # one model for each encoding that is loaded before the first request

_log = structlog.get_logger("trimtab")


class _Endpoint:
    """What Starlette routes to: the gateway, from the moment that it is open."""

    gateway: Gateway
    vitals: Vitals

    def __init__(self, traffic: Traffic, admission: Admission, read_timeout_s: float) -> None:
        self._traffic = traffic
        self._admission = admission
        self._read_timeout_s = read_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._traffic.serve(self._in_turn, scope, receive, send)

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._admission.serve(self._answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gateway(scope, Patience(receive, self._read_timeout_s, client=client.of(scope)), send)


def create_app(config: Config, environ: Mapping[str, str], *, mark_ttl_s: float = MARK_TTL_S) -> Starlette:
    """The proxy as an ASGI application. Connections, files and threads are opened when it starts.

    Turns of a worker that died are believed to be in flight for up to `mark_ttl_s` seconds.

    Raises:
        ConfigError: a setting that only fails where it is used, such as a key's variable that is not set.
    """
    problems = configs.unset_variables(config, environ)
    if problems:
        raise ConfigError(*problems)
    keyring, server = configs.keyring(config, environ), config.server
    metrics = Metrics(routes=[route.name for route in config.routes], policies=registry.names())
    exposition = Exposition(metrics.registry, environ.get(FOLDER_VARIABLE))
    traffic, health, dashboard = Traffic(metrics), Health(), Dashboard()
    waiting = metrics.gauge("trimtab_requests_waiting", "Requests that wait for their turn.", mode="livesum")
    refused = metrics.counter("trimtab_requests_turned_away", "Requests that were too many, answered with 503.")
    admission = Admission(
        server.max_requests,
        waiting=server.max_waiting,
        wait_s=server.queue_timeout_s,
        on_wait=waiting.set,
        on_refusal=refused.inc,
    )
    endpoint = _Endpoint(traffic, admission, server.read_timeout_s)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with opened(config, environ, metrics, mark_ttl_s) as parts:
            endpoint.gateway, endpoint.vitals = parts.gateway, parts.vitals
            dashboard.api, dashboard.preview = parts.api, parts.preview
            with health.serving():
                yield
            # The server has cancelled what was still open; each writes its audit record on its way out.
            await traffic.ended(CLOSING_S)

    async def measured(request: Request) -> Response:
        endpoint.vitals.sample()
        page = await asyncio.to_thread(exposition.render, request.headers.get("accept", ""))
        return Response(page.body, headers={"content-type": page.content_type})

    door = partial(
        Door, keyring=keyring, admin_port=server.admin_port, on_refusal=lambda code: metrics.refused("", code)
    )
    return Front(
        door(endpoint),
        routes=[
            Path("/healthz", health.alive),
            Path("/readyz", health.ready),
            Path("/metrics", measured),
            Path("/trimtab", to_pages),
            Mount("/trimtab", routes=dashboard.routes()),
            *(Path(path, answers.OnlyGet(), methods=None) for path in ("/healthz", "/readyz", "/metrics", "/trimtab")),
            Path("/{path:path}", endpoint, methods=None),
            WebSocketRoute("/{path:path}", endpoint),
        ],
        middleware=[Middleware(door)],
        exception_handlers={HTTPException: answers.refusal, Exception: answers.broken},
        lifespan=lifespan,
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """What of an open worker is asked from outside."""

    gateway: Gateway
    vitals: Vitals
    preview: Preview
    api: Api


@asynccontextmanager
async def opened(
    config: Config, environ: Mapping[str, str], metrics: Metrics, mark_ttl_s: float
) -> AsyncIterator[Parts]:
    """The parts of one worker, connections, files and threads open until the context ends."""
    async with AsyncExitStack() as stack:
        bounds = Bounds.of(config.server.memory_bytes - config.server.memory_bytes // PREVIEWS)
        executor = ThreadPoolExecutor(THREADS, thread_name_prefix="trim")
        giants = ThreadPoolExecutor(GIANTS, thread_name_prefix="giant")
        for pool in (executor, giants):
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(executor, _warm, model) for model in WARM))
        if any(Need.SUMMARIES in route.policy.needs for route in configs.routes(config)):
            await loop.run_in_executor(executor, clusters.load)
        everything = config.audit.slots == "all"
        sinks = Sinks(
            paths=config.audit.path,
            max_bytes=config.audit.max_bytes,
            backups=config.audit.backups,
            everything=everything,
        )
        kept = None if config.audit.store is None else _audit_store(config)
        audit = Audit(sinks, kept)
        audit.start()
        stack.callback(audit.close)
        upstreams = {}
        for name in config.upstreams:
            upstreams[name] = _upstream(name, config, environ)
            stack.push_async_callback(upstreams[name].aclose)
        windows = Windows()
        stack.push_async_callback(windows.aclose)
        conversing: list[Conversations] = []
        limits = Limits(call_s=config.state_timeout_s)
        store = open_store(
            config.state,
            limits=limits,
            settled=lambda standing: _settled(conversing, standing),
            max_bytes=bounds.state,
        )
        await store.open()
        stack.push_async_callback(store.close)
        secrets = derive(await _state_key(store, config, environ))
        conversing.append(_conversations(store, secrets, config, bounds, mark_ttl_s))
        stack.push_async_callback(conversing[0].close)
        shared = None if config.state.lower().startswith("memory:") else store
        calibrations = Lasting(Calibrations(), shared, salt=secrets.salt, ttl_s=config.state_ttl_s)
        stack.push_async_callback(calibrations.close)
        tracing = open_tracing(configs.traces(config), environ).tracing
        if tracing is not None:
            stack.push_async_callback(asyncio.to_thread, tracing.close)
        vitals = Vitals(metrics, store=lambda: store.stats, audit=audit.counts, windows=lambda: windows.learned)
        stack.push_async_callback(_stop, asyncio.create_task(vitals.keep(), name="trimtab-vitals"))
        source = configs.vectors(config)
        embeddings = source.open(lambda name: _upstream(name, config, environ))
        stack.push_async_callback(asyncio.to_thread, embeddings.close)
        ratings = Ratings(upstreams, cache_bytes=bounds.ratings)
        stack.push_async_callback(ratings.aclose)
        vitals.watch("embedder", lambda: embeddings.stats)
        vitals.watch("ratings", lambda: ratings.stats)
        hooks = Hooks(installed())
        stack.push_async_callback(asyncio.to_thread, hooks.close)
        background = Background(size=BACKGROUND, max_bytes=bounds.background)
        vitals.watch("background", lambda: background.counts)
        stack.push_async_callback(asyncio.to_thread, background.close)
        # Where other workers decide too, a plan would rest on a ledger that may not be the last.
        preparation = Preparation(
            background,
            plans=config.state.lower().startswith("memory:"),
            plan_bytes=bounds.plans,
            cluster_bytes=bounds.clusters,
        )
        pipeline = Pipeline(
            windows,
            conversing[0],
            embeddings=embeddings,
            wait_s=config.embeddings.wait_ms / 1000,
            summarizer=UpstreamSummarizer(upstreams),
            ratings=ratings,
            hooks=hooks,
            preparation=preparation,
            calibrations=calibrations,
            bounds=bounds,
            executor=executor,
            giants=giants,
        )
        router = configs.router(config)
        exchanging = exchange.Parts(
            pipeline=pipeline,
            learned=Learned(),
            audit=audit,
            metrics=metrics,
            recording=exchange.Recording(
                everything=everything or kept is not None,
                content=config.audit.content,
                most=config.audit.max_slots or None,
            ),
            tracing=tracing,
        )
        gateway = Gateway(router, upstreams, windows, exchanging, max_body_bytes=config.server.max_body_bytes)
        local = embeddings if config.embeddings.backend != "endpoint" else None  # previews ask nobody
        few = Bounds.of(config.server.memory_bytes // PREVIEWS)
        trying = Pipeline(windows, embeddings=local, wait_s=config.embeddings.wait_ms / 1000, bounds=few)
        vitals.remember({"previews": lambda: together(trying.memories)})
        for part in (pipeline, conversing[0], preparation, ratings, embeddings, store, audit):
            vitals.remember(part.memories)
        server = config.server
        preview = Preview(
            trying, router, executor, max_body_bytes=server.max_body_bytes, read_timeout_s=server.read_timeout_s
        )
        api = Api(
            kept,
            configs.routes(config),
            content=config.audit.content,
            health=lambda: {"store": asdict(store.stats), "audit": asdict(audit.counts)},
        )
        loop.run_in_executor(executor, api.warm)
        yield Parts(gateway, vitals, preview, api)
    vitals.sample()  # what was written and lost while closing


def _settled(conversing: Sequence[Conversations], standing: Mapping[bytes, bytes]) -> None:
    for conversations in conversing:
        conversations.settled(standing)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _audit_store(config: Config) -> AuditStore:
    path, kept = configs.audit_file(config), config.audit
    return AuditStore(path, rows=kept.keep_rows, days=kept.keep_days, max_bytes=kept.keep_bytes)


def _warm(model: str) -> None:
    tokens.counter(model).content("warm")


def _upstream(name: str, config: Config, environ: Mapping[str, str]) -> Upstream:
    settings = config.upstreams[name]
    return Upstream(
        name,
        settings.base_url,
        environ[settings.api_key_env] if settings.api_key_env else None,
        connect_s=settings.connect_timeout_s,
        idle_s=settings.idle_timeout_s,
        connections=settings.max_connections,
        ca_bundle=settings.ca_file,
    )


def _conversations(
    store: SteadyStore, secrets: Secrets, config: Config, bounds: Bounds, mark_ttl_s: float
) -> Conversations:
    return Conversations(
        store,
        salt=secrets.salt,
        ttl_s=config.state_ttl_s,
        capacity=bounds.decisions // ENTRY_OVERHEAD,
        max_bytes=bounds.decisions,
        ledger_bytes=bounds.ledgers,
        seal=Sealer(secrets.seal),
        turns=Turns(store, ttl_s=mark_ttl_s),
    )


async def _state_key(store: SteadyStore, config: Config, environ: Mapping[str, str]) -> bytes:
    """The operator's key, else one that all workers of the store find in it."""
    if config.state_key_env:
        return environ[config.state_key_env].encode("utf-8", "surrogateescape")
    made = os.urandom(32)
    if config.state.lower().startswith("memory:"):
        return made
    _log.warning("state_key_made", why="state_key_env is not set, so the key is kept beside what it protects")
    try:
        return (await store.add({STATE_KEY: made}, None))[STATE_KEY]
    except StoreError:
        _log.warning("state_key_alone", why="the store does not answer, so this worker's decisions are its own")
        return made
