import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from fakes.server import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.embeddings import Embeddings, key
from proxy.embeddings.endpoint import EndpointEmbedder
from proxy.errors import UpstreamError
from proxy.upstream import Upstream


class Endpoint:
    """An embeddings endpoint that answers with `respond(input)`, by default each text's length and a constant."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.respond: Callable[[list[str]], Response] = self.vectors
        self.app = Starlette(routes=[Route("/v1/embeddings", self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.requests.append((dict(request.headers), body))
        return self.respond(body["input"])

    def vectors(self, texts: list[str]) -> Response:
        data = [{"object": "embedding", "index": i, "embedding": [len(text), 3]} for i, text in enumerate(texts)]
        return JSONResponse({"object": "list", "data": data[::-1], "usage": {"total_tokens": 1}})


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[Endpoint, Callable[..., EndpointEmbedder]]]:
    fake = Endpoint()
    async with serving(fake.app) as url:
        made: list[EndpointEmbedder] = []

        def embedder(**options: Any) -> EndpointEmbedder:
            made.append(EndpointEmbedder(lambda: Upstream("embeddings", f"{url}/v1", "secret"), "small", **options))
            return made[-1]

        yield fake, embedder
        for each in made:
            await asyncio.to_thread(each.close)


async def test_vectors_are_in_the_order_of_the_texts_and_of_length_1(endpoint: Any) -> None:
    fake, embedder = endpoint

    vectors = await asyncio.to_thread(embedder().embed, ["four", "", "日本\ud800"])

    assert [each.shape for each in vectors] == [(1, 2)] * 3
    assert np.allclose(vectors[0], [[0.8, 0.6]])
    assert np.allclose(np.linalg.norm(np.concatenate(vectors), axis=1), 1)
    headers, body = fake.requests[0]
    assert headers["authorization"] == "Bearer secret"
    assert body["model"] == "small"
    assert "" not in body["input"]


async def test_long_texts_are_cut_and_calls_are_bounded(endpoint: Any) -> None:
    fake, embedder = endpoint
    text = "".join(chr(97 + i % 26) for i in range(1000))

    vectors = await asyncio.to_thread(embedder(piece_characters=80, max_pieces=100, batch=5).embed, [text, "short"])

    sent = [piece for _, body in fake.requests for piece in body["input"]]
    assert max(len(body["input"]) for _, body in fake.requests) == 5
    assert [len(each) for each in vectors] == [len(sent) - 1, 1]
    assert sent[0] == text[:80]
    assert text.endswith(sent[-2])


async def test_of_a_very_long_text_the_first_and_last_pieces_count(endpoint: Any) -> None:
    fake, embedder = endpoint

    await asyncio.to_thread(embedder(piece_characters=10, max_pieces=4).embed, ["a" * 500 + "z" * 500])

    sent = [piece for _, body in fake.requests for piece in body["input"]]
    assert len(sent) == 4
    assert sent[0] == "a" * 10
    assert sent[-1].endswith("z")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(Response(status_code=401), UpstreamError, id="refused"),
        pytest.param(Response("<html>"), ValueError, id="not-json"),
        pytest.param(JSONResponse({"data": []}), ValueError, id="none"),
        pytest.param(JSONResponse({"data": [{"index": 1, "embedding": [1.0]}]}), ValueError, id="other-index"),
        pytest.param(JSONResponse({"data": [{"index": 0, "embedding": []}]}), ValueError, id="empty"),
        pytest.param(Response('{"data": [{"index": 0, "embedding": [1e300]}]}'), ValueError, id="too-large"),
    ],
)
async def test_an_answer_that_is_none_is_an_error(endpoint: Any, answer: Response, error: type[Exception]) -> None:
    fake, embedder = endpoint
    fake.respond = lambda texts: answer

    with pytest.raises(error):
        await asyncio.to_thread(embedder().embed, ["a"])


async def test_an_endpoint_that_hangs_is_given_up(endpoint: Any) -> None:
    fake, embedder = endpoint
    fake.app.router.routes[0] = Route("/v1/embeddings", _hang, methods=["POST"])

    with pytest.raises(TimeoutError):
        await asyncio.to_thread(embedder(timeout_s=0.05).embed, ["a"])


async def test_it_serves_embeddings(endpoint: Any) -> None:
    _, embedder = endpoint
    embeddings = Embeddings(embedder())

    found = await embeddings.gather({key("abc"): "abc"}, 5)

    assert found[key("abc")].shape == (1, 2)
    assert await asyncio.to_thread(embeddings.close, 5)


@pytest.mark.parametrize("option", ["piece_characters", "max_pieces", "batch"])
def test_limits_below_the_least_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option}: must be at least"):
        EndpointEmbedder(lambda: Upstream("x", "http://x"), "m", **{option: 0})  # type: ignore[arg-type]


async def _hang(request: Request) -> Response:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response()
