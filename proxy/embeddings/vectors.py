"""The embeddings of a worker or a command, by the settings that name them, and what routes miss without."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from policies.types import Need
from proxy.embeddings import Embeddings, backends
from proxy.embeddings.sentence import DEFAULT_MODEL, SentenceTransformerEmbedder
from proxy.route import Route
from proxy.upstream import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where vectors come from: a backend of `backends.NAMES`, a model, an upstream's name; and how much is kept."""

    backend: str
    model: str | None = None
    upstream: str | None = None
    cache_bytes: int = 64 * 2**20

    def open(self, connect: Callable[[str], Upstream]) -> Embeddings:
        """The embeddings; `connect` makes the client of an upstream by its name. Nothing is loaded yet."""
        name = self.upstream
        embedder = backends.create(self.backend, self.model, None if name is None else lambda: connect(name))
        return Embeddings(embedder, cache_bytes=self.cache_bytes)

    def local(self) -> Embeddings:
        """The embeddings where they are made on this machine; where an endpoint makes them there are none."""
        backend = "none" if self.backend == "endpoint" else self.backend
        return Embeddings(backends.create(backend, self.model), cache_bytes=self.cache_bytes)

    @property
    def missing(self) -> str | None:
        """Why there will be no vectors; None where there will."""
        if self.backend == "none":
            return "embeddings.backend is none"
        if self.backend == "endpoint":
            return None
        return SentenceTransformerEmbedder(self.model or DEFAULT_MODEL).missing


def wanting(routes: Iterable[Route]) -> tuple[str, ...]:
    """The names of the routes whose policies know more with vectors."""
    dense = {Need.SIMILARITY, Need.VECTORS}
    return tuple(route.name for route in routes if any(policy.needs & dense for policy in route.policies))
