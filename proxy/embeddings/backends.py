"""The embedders by name."""

from collections.abc import Callable

from proxy.embeddings import Embedder
from proxy.embeddings.endpoint import EndpointEmbedder
from proxy.embeddings.sentence import DEFAULT_MODEL, SentenceTransformerEmbedder
from proxy.errors import ConfigError
from proxy.upstream import Upstream

NAMES = ("sentence-transformers", "endpoint", "none")


def create(
    backend: str, model: str | None = None, connect: Callable[[], Upstream] | None = None, path: str = "embeddings"
) -> Embedder | None:
    """The embedder of a backend in `NAMES`; None for `none`. Nothing is loaded and nobody is called.

    `sentence-transformers` takes a model's name or folder, or has its default; `endpoint` needs a model's name and
    `connect`, which makes the client. Raises ConfigError for anything else, each key under `path`.
    """
    match backend:
        case "none":
            return None
        case "sentence-transformers":
            return SentenceTransformerEmbedder(model or DEFAULT_MODEL)
        case "endpoint":
            problems = []
            if not model:
                problems.append(f"{path}.model: must name the endpoint's model, got {model!r}")
            if connect is None:
                problems.append(f"{path}.upstream: must name an upstream that has /v1/embeddings")
            if problems or not model or connect is None:
                raise ConfigError(*problems)
            return EndpointEmbedder(connect, model)
    raise ConfigError(f"{path}.backend: must be one of {', '.join(NAMES)}, got {backend!r}")
