"""What the application's front hands on, and what it keeps."""

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from proxy.http.front import Front


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/healthz", "own"),
        ("/trimtab/", "own"),
        ("/metrics", "own"),
        ("/v1/chat/completions", "onward"),
        ("/", "onward"),
        ("/healthz/", "onward"),
        ("/metricsx", "onward"),
    ],
)
async def test_only_paths_of_its_own_are_looked_for(path: str, answer: str) -> None:
    app = Front(PlainTextResponse("onward"), routes=[Route("/{path:path}", lambda request: PlainTextResponse("own"))])

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://t") as asking:
        assert (await asking.get(path)).text == answer
