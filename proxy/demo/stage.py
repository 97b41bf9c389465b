"""The proxy and its upstream, both served on free ports of this machine, in one event loop."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from proxy import config as configs
from proxy.app import create_app
from proxy.errors import ConfigError
from proxy.route import Route

WINDOW, RESERVE = 1600, 400  # tokens; small, so that a conversation fills it while one looks on
_HOST = "127.0.0.1"
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Stage:
    """Where to reach them."""

    url: str

    @property
    def dashboard(self) -> str:
        """The address of the dashboard."""
        return f"{self.url}/trimtab/"


@asynccontextmanager
async def opened(upstream: ASGIApp, *, port: int) -> AsyncIterator[Stage]:
    """Both at work until the context ends; the proxy on `port`, or on a free one where it is 0.

    Raises:
        ConfigError: the port cannot be had.
    """
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(_serving(upstream, 0))
        app = create_app(configs.loads(_settings(behind)), os.environ)
        yield Stage(await stack.enter_async_context(_serving(app, port)))


def routes(upstream: str) -> tuple[Route, ...]:
    """The routes that are served, as the proxy takes them."""
    return configs.routes(configs.loads(_settings(upstream)))


def _settings(upstream: str) -> str:
    return f"""
upstreams: {{demo: {{base_url: "{upstream}/v1"}}}}
audit: {{path: "{os.devnull}", max_bytes: 0, slots: all}}
embeddings: {{backend: none}}
defaults: {{window: {WINDOW}, reserve_output: {RESERVE}}}
routes: [{{name: demo}}]
"""


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs the loop: Ctrl-C ends the demonstration, not one of its parts."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _serving(app: ASGIApp, port: int) -> AsyncIterator[str]:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((_HOST, port))
    except OSError as error:
        sock.close()
        raise ConfigError(f"--port: {port} cannot be used: {error.strerror}; 0 takes a free one") from None
    server = _Server(
        uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="on", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while not server.started and not task.done():  # noqa: ASYNC110 - a server tells nobody
                await asyncio.sleep(0.01)
        if task.done():
            await task
            raise RuntimeError("a server ended before it listened")
        yield f"http://{_HOST}:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait({task})
        sock.close()
