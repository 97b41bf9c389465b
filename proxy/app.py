"""The application: parts made from a configuration, opened in order and closed in the opposite one."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send

from proxy import config as configs
from proxy import tokens
from proxy.audit import Audit, Sinks
from proxy.conversations import Conversations
from proxy.errors import ConfigError
from proxy.gateway import Gateway, Recording
from proxy.pipeline import Pipeline
from proxy.schema import Config
from proxy.sealing import Sealer, derive
from proxy.stores.contract import StoreError
from proxy.stores.opening import open_store
from proxy.stores.steady import SteadyStore
from proxy.upstream import Upstream
from proxy.windows import Windows

THREADS = 2  # for reading, counting and cutting large bodies
STATE_KEY = b"state key"  # where a store keeps the key that was made for it
WARM = ("gpt-4o", "gpt-4")  # one model for each encoding that is loaded before the first request

_log = structlog.get_logger("trimtab")


class _Endpoint:
    """What Starlette routes to: the gateway, from the moment that it is open."""

    gateway: Gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gateway(scope, receive, send)


def create_app(config: Config, environ: Mapping[str, str]) -> Starlette:
    """The proxy as an ASGI application. Connections, files and threads are opened when it starts.

    Raises:
        ConfigError: a setting that only fails where it is used, such as a key's variable that is not set.
    """
    problems = configs.unset_variables(config, environ)
    if problems:
        raise ConfigError(*problems)
    endpoint = _Endpoint()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with opened(config, environ) as gateway:
            endpoint.gateway = gateway
            yield

    return Starlette(
        routes=[
            Path("/healthz", _healthy),
            Path("/readyz", _healthy),
            Path("/{path:path}", endpoint, methods=None),
            WebSocketRoute("/{path:path}", endpoint),
        ],
        lifespan=lifespan,
    )


async def _healthy(_: object) -> Response:
    return JSONResponse({"status": "ok"})


@asynccontextmanager
async def opened(config: Config, environ: Mapping[str, str]) -> AsyncIterator[Gateway]:
    """The gateway of one worker, its connections, files and threads open until the context ends."""
    async with AsyncExitStack() as stack:
        executor = ThreadPoolExecutor(THREADS, thread_name_prefix="trim")
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(executor, _warm, model) for model in WARM))
        audit = Audit(Sinks(paths=config.audit.path, max_bytes=config.audit.max_bytes, backups=config.audit.backups))
        audit.start()
        stack.callback(audit.close)
        upstreams = {}
        for name in config.upstreams:
            upstreams[name] = _upstream(name, config, environ)
            stack.push_async_callback(upstreams[name].aclose)
        windows = Windows()
        stack.push_async_callback(windows.aclose)
        yield Gateway(
            configs.router(config),
            upstreams,
            Pipeline(windows, await _conversations(stack, config, environ), executor=executor),
            windows,
            audit,
            max_body_bytes=config.server.max_body_bytes,
            recording=Recording(everything=config.audit.slots == "all", content=config.audit.content),
        )


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


async def _conversations(stack: AsyncExitStack, config: Config, environ: Mapping[str, str]) -> Conversations:
    made: list[Conversations] = []

    def settled(standing: Mapping[bytes, bytes]) -> None:
        for conversations in made:
            conversations.settled(standing)

    store = open_store(config.state, settled=settled)
    await store.open()
    stack.push_async_callback(store.close)
    secrets = derive(await _state_key(store, config, environ))
    conversations = Conversations(store, salt=secrets.salt, ttl_s=config.state_ttl_s, seal=Sealer(secrets.seal))
    made.append(conversations)
    stack.push_async_callback(conversations.close)
    return conversations


async def _state_key(store: SteadyStore, config: Config, environ: Mapping[str, str]) -> bytes:
    """The operator's key, else one that all workers of the store find in it."""
    if config.state_key_env:
        return environ[config.state_key_env].encode("utf-8", "surrogateescape")
    made = os.urandom(32)
    if config.state.startswith("memory:"):
        return made
    _log.warning("state_key_made", why="state_key_env is not set, so the key is kept beside what it protects")
    try:
        return (await store.add({STATE_KEY: made}, None))[STATE_KEY]
    except StoreError:
        _log.warning("state_key_alone", why="the store does not answer, so this worker's decisions are its own")
        return made
