"""The figures are the examples of OpenAI's guide, or what users were billed and published."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.tokens.images import cost, vision
from proxy.tokens.pixels import Size
from proxy.wire.chat import Image
from tests.proxy.tokens.test_pixels import png, url

MODELS = ["gpt-4o", "gpt-4o-mini", "gpt-5-nano", "gpt-5.4", "gpt-5.5", "gpt-6-sol", "claude-sonnet-4-5", "gemini-3-pro"]
MODELS += ["pixtral-large", "llama-4-scout", "qwen2.5-vl-7b", "o4-mini", "no-such-model"]


@pytest.mark.parametrize(
    ("model", "size", "detail", "tokens"),
    [
        ("gpt-4o", (1024, 1024), "high", 765),
        ("gpt-4o", (2048, 4096), "high", 1105),
        ("gpt-4o", (4096, 8192), "low", 85),
        ("gpt-4o", (3008, 2000), None, 1105),
        ("gpt-4.1", (2049, 513), None, 1445),
        ("gpt-4.1", (2050, 513), None, 765),
        ("gpt-4o", (1, 1), "auto", 255),
        ("gpt-4o-mini", (512, 512), None, 2833 + 5667),
        ("o3", (512, 513), None, 75 + 2 * 150),
        ("gpt-5", (512, 512), None, 210),
        ("computer-use-preview", (512, 512), None, 194),
        ("gpt-4.1-mini", (1024, 1024), None, int(1024 * 1.62)),
        ("gpt-4.1-nano", (1800, 2400), None, int(1452 * 2.46)),
        ("gpt-4.1-mini", (4000, 1474), None, 2488),
        ("o4-mini", (1024, 1024), "low", int(1024 * 1.72)),
        ("gpt-5-nano", (32, 33), None, 4),
        ("gpt-5.2", (4000, 4000), None, int(39 * 39 * 1.2)),
        ("gpt-5.4", (2048, 1024), None, int(64 * 32 * 1.2)),
        ("gpt-5.4", (2048, 1024), "low", int(16 * 8 * 1.2)),
        ("gpt-5.4", (3200, 3200), "original", int(100 * 100 * 1.2)),
        ("gpt-5.4", (3200, 3200), "auto", int(50 * 50 * 1.2)),
        ("gpt-5.5", (3200, 3200), "auto", int(100 * 100 * 1.2)),
        ("gpt-5.6-sol", (6400, 6400), None, int(200 * 200 * 1.2)),
        ("claude-3-5-sonnet", (1000, 750), "high", 1000),
        ("claude-3-5-sonnet", (9000, 9000), None, 1600),
        ("claude-opus-4-8", (2000, 1500), None, 4000),
        ("gemini-2.5-flash", (384, 384), None, 258),
        ("gemini-2.5-flash", (960, 540), None, 258 * 6),
        ("gemma-3-27b-it", (4000, 4000), None, 258),
    ],
)
def test_an_image_costs_what_the_guides_say(model: str, size: tuple[int, int], detail: str | None, tokens: int) -> None:
    assert cost(Image(url(png(*size)), detail), vision(model)) == tokens


@pytest.mark.parametrize("address", ["https://example.com/a.jpg", "data:image/png;base64,broken", "nonsense"])
def test_an_image_of_unknown_size_costs_the_most(address: str) -> None:
    assert cost(Image(address, None), vision("gpt-4o")) == 85 + 8 * 170
    assert cost(Image(address, "low"), vision("gpt-4o")) == 85
    assert cost(Image(address, None), vision("gpt-5-mini")) == 2488
    assert cost(Image(address, None), vision("claude-3-5-sonnet")) == 1600


@given(
    st.sampled_from(MODELS),
    st.integers(1, 60_000),
    st.integers(1, 60_000),
    st.sampled_from([None, "low", "high", "auto", "original", "nonsense"]),
)
@settings(max_examples=200, deadline=None)
def test_every_size_has_a_cost_and_lying_down_it_has_the_same(
    model: str, width: int, height: int, detail: str | None
) -> None:
    kind = vision(model)

    assert kind.cost(Size(width, height), detail) >= 1
    assert kind.cost(Size(width, height), detail) == kind.cost(Size(height, width), detail)


@given(st.sampled_from([m for m in MODELS if m != "gpt-6-sol"]), st.integers(1, 60_000), st.integers(1, 60_000))
@settings(max_examples=200, deadline=None)
def test_no_size_costs_more_than_an_unknown_one(model: str, width: int, height: int) -> None:
    """Where the model shrinks what is too large."""
    kind = vision(model)

    for detail in (None, "low", "high", "original"):
        assert kind.cost(Size(width, height), detail) <= kind.cost(None, detail)
