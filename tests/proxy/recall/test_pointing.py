"""A prompt that asks for what was left out is told from one that goes on with what is there."""

import pytest

from policies.relevance import Passage
from proxy.recall.pointing import asking, strength
from proxy.recall.recalling import NARROW, PLAINLY

OLD = [Passage.of("The Halcyon got berth B7.")]
NEW = [Passage.of("The weather in the north is fine."), Passage.of("The crew likes it.")]
ALL = [*OLD, *NEW, *map(Passage.of, ("one", "two", "three"))]


@pytest.mark.parametrize(
    "query", ["Which berth did the Halcyon get?", "哪个泊位给了Halcyon？"], ids=["english", "in another script"]
)
def test_a_question_about_what_is_gone_points_back(query: str) -> None:
    assert strength(query, OLD, NEW, ALL) > PLAINLY - NARROW


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("Is the weather in the north better?", id="a question about what is there"),
        pytest.param("Thanks a lot!", id="nothing that was said"),
        pytest.param("Then please write a long and friendly letter about the berth", id="goes on"),
    ],
)
def test_other_prompts_do_not(query: str) -> None:
    assert strength(query, OLD, NEW, ALL) < PLAINLY - NARROW


@pytest.mark.parametrize(
    ("text", "share"),
    [("Where is it?", 1.0), ("It is gone.", 0.0), ("It is gone. Where is it?", 0.52), ("在哪里？", 1.0), ("", 0.0)],
)
def test_how_much_of_a_text_is_questions(text: str, share: float) -> None:
    assert asking(text) == pytest.approx(share, abs=0.01)
