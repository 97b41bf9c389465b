"""Sentences are found in any script, and cover all that is no white space."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.recall.sentences import LONGEST, spans


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "The berth is B7. Ida comes at 9.30! Does she? Yes",
            ["The berth is B7.", "Ida comes at 9.30!", "Does she?", "Yes"],
        ),
        ("泊位是B7。引水员九点到！好吗？", ["泊位是B7。", "引水员九点到！", "好吗？"]),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("first line\r\n\r\n  second: 1.5 m\n", ["first line", "second: 1.5 m"]),
        (" \n ", []),
    ],
    ids=["English", "Chinese", "quotes", "lines", "nothing"],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert [text[start:end] for start, end in spans(text)] == sentences


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab. \n。!?\"'x"), max_size=900) | st.text(max_size=200))
def test_nothing_but_white_space_is_between_sentences(text: str) -> None:
    found = spans(text)

    assert all(0 < end - start <= LONGEST for start, end in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    assert "".join("".join(text[a:b].split()) for a, b in found) == "".join(text.split())
