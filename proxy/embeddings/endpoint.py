"""Vectors by an endpoint that speaks OpenAI's `/v1/embeddings`."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from proxy.embeddings.texts import ends, plain
from proxy.errors import UpstreamError
from proxy.upstream import Reply, Upstream

_TARGET = b"/v1/embeddings"
_HEADERS = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))
_LARGEST = 64 * 2**20  # bytes of an answer


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


class EndpointEmbedder:
    """A model behind an endpoint. `connect` makes the client, with the operator's key, on the embedder's own loop.

    Texts longer than `piece_characters` are cut into overlapping pieces of that length; of one that has more than
    `max_pieces`, the first and the last count. A call sends at most `batch` pieces and takes at most `timeout_s`
    seconds.

    Raises ValueError for a limit below 1 (`max_pieces`: 2).
    """

    def __init__(
        self,
        connect: Callable[[], Upstream],
        model: str,
        *,
        piece_characters: int = 2000,
        max_pieces: int = 32,
        batch: int = 64,
        timeout_s: float = 30.0,
    ) -> None:
        for name, value, least in (
            ("piece_characters", piece_characters, 1),
            ("max_pieces", max_pieces, 2),
            ("batch", batch, 1),
        ):
            if value < least:
                raise ValueError(f"{name}: must be at least {least}, got {value}")
        self._connect = connect
        self._model = model
        self._piece = piece_characters
        self._max_pieces = max_pieces
        self._batch = batch
        self._timeout_s = timeout_s
        self._upstream: Upstream | None = None
        self._runner: asyncio.Runner | None = None

    @property
    def name(self) -> str:
        """Backend and model."""
        return f"endpoint:{self._model}"

    def reads(self, text: str) -> bool:
        """Always: nobody here knows what the model behind the endpoint was trained on."""
        return True

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The unit vectors of each text's pieces. Raises UpstreamError, and ValueError for an answer that is none."""
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(self._embed(texts))

    def close(self) -> None:
        """Close the connections."""
        if self._runner is not None:
            if self._upstream is not None:
                self._runner.run(self._upstream.aclose())
            self._runner.close()
        self._upstream = self._runner = None

    async def _embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        self._upstream = self._upstream or self._connect()
        cut = [self._pieces(text) for text in texts]
        pieces = [piece for each in cut for piece in each]
        made: list[list[float]] = []
        async with asyncio.timeout(self._timeout_s):
            for start in range(0, len(pieces), self._batch):
                made += await self._call(self._upstream, pieces[start : start + self._batch])
        vectors = np.array(made, dtype=np.float64)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise ValueError("embeddings answer: vectors must be numbers, got infinity or nan")
        unit = (vectors / np.maximum(lengths, 1e-9)).astype(np.float32)
        return np.split(unit, np.cumsum([len(each) for each in cut])[:-1])

    async def _call(self, upstream: Upstream, pieces: list[str]) -> list[list[float]]:
        body = msgspec.json.encode({"model": self._model, "input": pieces, "encoding_format": "float"})
        reply = await upstream.send("POST", _TARGET, _HEADERS, body)
        try:
            if reply.status != 200:
                raise UpstreamError("upstream_refused", f"upstream '{upstream.name}' answered {reply.status}")
            answer = msgspec.json.decode(await _read(reply), type=_Answer)
        finally:
            await reply.aclose()
        items = sorted(answer.data, key=lambda item: item.index)
        widths = {len(item.embedding) for item in items}
        if [item.index for item in items] != list(range(len(pieces))) or len(widths) != 1 or 0 in widths:
            raise ValueError(
                f"embeddings answer: must hold one vector for each of {len(pieces)} texts, all of a length"
            )
        return [item.embedding for item in items]

    def _pieces(self, text: str) -> list[str]:
        size = self._piece
        overlap = size // 8
        if not text.strip():
            return ["."]  # endpoints refuse an empty input
        text = plain(text)
        return ends(
            [text[i : i + size] for i in range(0, max(len(text) - overlap, 1), size - overlap)], self._max_pieces
        )


async def _read(reply: Reply) -> bytes:
    body = bytearray()
    async for chunk in reply.chunks():
        body += chunk
        if len(body) > _LARGEST:
            raise ValueError(f"embeddings answer: must be at most {_LARGEST} bytes")
    return bytes(body)
