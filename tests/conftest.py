"""Fixtures for tests that talk over real sockets, all of them on this machine."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from fakes.server import serving
from fakes.upstream import FakeUpstream, running
from hypothesis import settings
from starlette.types import ASGIApp

# A change is judged by the same examples as the one before; HYPOTHESIS_PROFILE=random looks for new ones.
settings.register_profile("steady", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proxies are not for tests."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """A fake upstream; set its `handler`, look at its `exchanges`."""
    async with running() as fake:
        yield fake


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Serves an ASGI application with uvicorn and gives its URL: `url = await serve(app)`."""
    async with AsyncExitStack() as stack:

        async def start(app: ASGIApp, **options: str) -> str:
            return await stack.enter_async_context(serving(app, **options))

        yield start


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names a bytes parameter after its argument: its content may differ from process to process (a gzip header has
    the time), and tests that run in several processes have to be called the same in each."""
    return argname if isinstance(val, bytes) else None
