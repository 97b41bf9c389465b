"""The application: parts made from a configuration and put together."""

from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path
from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send

from proxy import config as configs
from proxy import tokens
from proxy.audit import Audit, Sinks
from proxy.errors import ConfigError
from proxy.gateway import Gateway, Recording
from proxy.pipeline import Pipeline
from proxy.schema import Config
from proxy.upstream import Upstream
from proxy.windows import Windows

THREADS = 2  # for reading, counting and cutting large bodies


@dataclass(frozen=True, slots=True)
class Parts:
    """What one worker is made of."""

    gateway: Gateway
    upstreams: Mapping[str, Upstream]
    windows: Windows
    audit: Audit
    executor: ThreadPoolExecutor


def create_app(config: Config, environ: Mapping[str, str]) -> Starlette:
    """The proxy as an ASGI application. Connections, files and threads are opened when it starts.

    Raises:
        ConfigError: a setting that only fails where it is used, such as a key's variable that is not set.
    """
    problems = configs.unset_variables(config, environ)
    if problems:
        raise ConfigError(*problems)
    parts = _parts(config, environ)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tokens.counter("gpt-4o").content("warm")  # the first request does not wait for an encoding to load
        parts.audit.start()
        try:
            yield
        finally:
            await parts.windows.aclose()
            for upstream in parts.upstreams.values():
                await upstream.aclose()
            parts.executor.shutdown(wait=False, cancel_futures=True)
            parts.audit.close()

    return Starlette(
        routes=[
            Path("/healthz", _healthy),
            Path("/readyz", _healthy),
            Path("/{path:path}", _Endpoint(parts.gateway), methods=None),
            WebSocketRoute("/{path:path}", _Endpoint(parts.gateway)),
        ],
        lifespan=lifespan,
    )


class _Endpoint:
    """The gateway as Starlette takes an ASGI application for an endpoint: an object, not a function."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gateway(scope, receive, send)


async def _healthy(_: object) -> Response:
    return JSONResponse({"status": "ok"})


def _parts(config: Config, environ: Mapping[str, str]) -> Parts:
    upstreams = {
        name: Upstream(
            name,
            settings.base_url,
            environ[settings.api_key_env] if settings.api_key_env else None,
            connect_s=settings.connect_timeout_s,
            idle_s=settings.idle_timeout_s,
            connections=settings.max_connections,
            ca_bundle=settings.ca_file,
        )
        for name, settings in config.upstreams.items()
    }
    executor = ThreadPoolExecutor(THREADS, thread_name_prefix="trim")
    windows = Windows()
    pipeline = Pipeline(windows, executor=executor)
    audit = Audit(Sinks(paths=config.audit.path, max_bytes=config.audit.max_bytes, backups=config.audit.backups))
    gateway = Gateway(
        configs.router(config),
        upstreams,
        pipeline,
        windows,
        audit,
        max_body_bytes=config.server.max_body_bytes,
        recording=Recording(everything=config.audit.slots == "all", content=config.audit.content),
    )
    return Parts(gateway, upstreams, windows, audit, executor)
