"""Which of the dashboard's parts answers which path below /trimtab."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.dashboard.api import Api
from proxy.dashboard.pages import Pages, load
from proxy.preview import Preview


class Dashboard:
    """The own paths of a worker; `api` and `preview` are set when it is open."""

    api: Api
    preview: Preview

    def routes(self) -> list[BaseRoute]:
        """The routes below /trimtab; what is none of them is not found, and goes to no upstream."""
        pages = Pages(load())
        return [
            Route("/preview", _endpoint(lambda: self.preview), methods=["POST"]),
            Route("/preview", _only_post),  # which the last one would take for a page
            Route("/api/overview", _endpoint(lambda: self.api.overview), methods=["GET"]),
            Route("/api/decisions", _endpoint(lambda: self.api.decisions), methods=["GET"]),
            Route("/api/decisions/{id}", _endpoint(lambda: self.api.decision), methods=["GET"]),
            Route("/api/conversations", _endpoint(lambda: self.api.conversations), methods=["GET"]),
            Route("/api/conversations/{id}", _endpoint(lambda: self.api.conversation), methods=["GET"]),
            Route("/{path:path}", _endpoint(lambda: pages), methods=["GET"]),
        ]


async def to_pages(_: Request) -> Response:
    """From /trimtab to /trimtab/, where the page's own addresses are right."""
    return RedirectResponse("/trimtab/", 308)


async def _only_post(_: Request) -> Response:
    return Response(status_code=405, headers={"allow": "POST"})


Answer = Callable[[Request], Awaitable[Response]]


def _endpoint(part: Callable[[], Answer]) -> Answer:
    """The part as it is when it is asked: it is not there before the worker is open."""

    async def endpoint(request: Request) -> Response:
        return await part()(request)

    return endpoint
