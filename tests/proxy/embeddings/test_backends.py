import pytest

from proxy.embeddings.backends import NAMES, create
from proxy.errors import ConfigError
from proxy.upstream import Upstream


def connect() -> Upstream:
    raise AssertionError("nobody is called at start")


@pytest.mark.parametrize(
    ("backend", "model", "name"),
    [
        pytest.param("sentence-transformers", None, "sentence-transformers:all-MiniLM-L6-v2", id="default"),
        pytest.param("sentence-transformers", "/models/other", "sentence-transformers:/models/other", id="folder"),
        pytest.param("endpoint", "small", "endpoint:small", id="endpoint"),
    ],
)
def test_backends_have_a_name_for_their_vectors(backend: str, model: str | None, name: str) -> None:
    embedder = create(backend, model, connect)

    assert embedder is not None
    assert embedder.name == name


def test_none_is_no_embedder() -> None:
    assert create("none") is None


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigError) as unknown:
        create("minilm")
    with pytest.raises(ConfigError) as bare:
        create("endpoint", path="x")

    assert unknown.value.problems == (f"embeddings.backend: must be one of {', '.join(NAMES)}, got 'minilm'",)
    assert [problem.split(":")[0] for problem in bare.value.problems] == ["x.model", "x.upstream"]
