"""The parts of a configuration that name models: of vectors, of summaries and of ratings. (pure)"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from proxy.config.problems import MisplacedError, SeveralProblemsError
from proxy.config.scalars import Count, Name, Text
from proxy.config.sections import Section
from proxy.route import SummaryKind

SMALL_MODEL = {
    "upstream": "an upstream that needs no key from a client",
    "model": "the name of a small model that it has",
}


class Embeddings(Section):
    """Where vectors of texts come from, and how long a request waits for them."""

    backend: Literal["sentence-transformers", "endpoint", "none"] = "sentence-transformers"
    model: Text | None = None
    upstream: Name | None = None
    wait_ms: Annotated[int, Field(ge=0, le=60_000)] = 150
    cache_bytes: Count = 64 * 1024 * 1024

    @model_validator(mode="after")
    def _complete(self) -> "Embeddings":
        if self.backend == "endpoint":
            missing = [name for name in ("model", "upstream") if getattr(self, name) is None]
            if missing:
                raise SeveralProblemsError(
                    [MisplacedError((name,), "required where backend is endpoint") for name in missing]
                )
        return self


class Summaries(Section):
    """What a summary is made of; for `llm`, which model writes it, and how long that may take."""

    kind: SummaryKind = SummaryKind.EXTRACTIVE
    upstream: Name | None = None
    model: Text | None = None
    max_tokens: Annotated[int, Field(ge=16, le=4096)] = 150
    deadline_s: Annotated[float, Field(gt=0, le=120)] = 5.0
    window: Annotated[int, Field(ge=1024)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Summaries":
        if self.kind is SummaryKind.LLM:
            missing = [name for name in ("upstream", "model") if getattr(self, name) is None]
            if missing:
                raise SeveralProblemsError(
                    [MisplacedError((name,), f"required where kind is llm: {SMALL_MODEL[name]}") for name in missing]
                )
        return self


class Ratings(Section):
    """Which model rates messages, for policies with `relevance: llm`, and how long that may take for some of them."""

    upstream: Name | None = None
    model: Text | None = None
    deadline_s: Annotated[float, Field(gt=0, le=120)] = 10.0
