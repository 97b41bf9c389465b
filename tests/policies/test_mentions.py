from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import mentions as subject
from policies.keywords import keywords
from policies.mentions import mentions, words
from tests.policies.sample_windows import TEXTS

HARBOUR = [f"crane {i % 7} lifts berth{i % 3} harbour{i % 11} tide" for i in range(150)]


def test_a_text_takes_up_those_before_it_that_share_enough() -> None:
    said = ["parcel 4711 for Bremen", "nice weather", "parcel 4711 is late", "Bremen parcel 4711"]

    assert mentions([words(text) for text in said]) == [(), (), (0,), (0, 2)]
    assert mentions([words(text) for text in said], start=3) == [(0, 2)]
    assert mentions([]) == []


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.sampled_from(TEXTS) | st.text("abc ", max_size=30), max_size=40),
    start=st.integers(0, 40),
    threshold=st.floats(0, 0.9),
)
def test_mentions_are_those_of_comparing_every_pair(texts: list[str], start: int, threshold: float) -> None:
    """A few texts, and more than are compared one by one."""
    sets = [keywords(text) for text in texts]
    expected = [
        tuple(i for i, other in enumerate(sets[:n]) if len(own & other) > threshold * max(len(own), len(other), 1))
        for n, own in enumerate(sets)
    ]
    near = [
        (i, n)
        for n, own in enumerate(sets)
        for i, other in enumerate(sets[:n])
        if abs(len(own & other) - threshold * max(len(own), len(other))) < 1e-9
    ]
    if not near:
        assert mentions([words(text) for text in texts], start, threshold) == expected[start:]


@pytest.mark.parametrize("sparse", [0, 10**9], ids=["sorted", "a table"])
@pytest.mark.parametrize("common", [20, 5_000], ids=["common words", "rare words"])
@pytest.mark.parametrize("reach", [7, 64, 5_000])
def test_one_by_one_and_together_they_are_the_same(
    monkeypatch: pytest.MonkeyPatch, sparse: int, common: int, reach: int
) -> None:
    monkeypatch.setattr(subject, "SPARSE", sparse)
    monkeypatch.setattr(subject, "REACH", reach)
    monkeypatch.setattr(subject, "COMMON", common)
    said = [words(text) for text in HARBOUR]
    together = mentions(said)
    monkeypatch.setattr(subject, "FEW", len(said))

    assert mentions(said) == together
    assert any(together)
    assert all(n - reach <= place < n for n, places in enumerate(together) for place in places)


def test_a_hundred_thousand_short_texts_take_seconds_at_the_most() -> None:
    said = [words("fine day")] * 100_000
    began = thread_time()
    mentions(said)

    assert thread_time() - began < 10
