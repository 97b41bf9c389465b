"""A prompt that asks for what was left out is told from one that goes on with what is there."""

import pytest

from policies.relevance import Index, Passage, relevance
from policies.terms import read
from proxy.recall.pointing import GAP, asking, looks_back, repeats, strength
from proxy.recall.recalling import NARROW, PLAINLY

OLD = [Passage.of("The Halcyon got berth B7.")]
NEW = [Passage.of("The weather in the north is fine."), Passage.of("The crew likes it.")]
ALL = [*OLD, *NEW, *map(Passage.of, ("one", "two", "three"))]


def pointing(query: str) -> float:
    """The strength of a prompt, the gap between old and new as relevance has it."""
    scores = relevance(query, Index(tuple(ALL)))
    return strength(query, OLD, NEW, ALL, float(scores[0] - scores[1:].max()))


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("Which berth did the Halcyon get?", id="english"),
        pytest.param("哪个泊位给了Halcyon？", id="in another script"),
        pytest.param("You told me earlier about a berth for the Halcyon.", id="no question"),
    ],
)
def test_a_prompt_about_what_is_gone_points_back(query: str) -> None:
    assert pointing(query) > PLAINLY - NARROW


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("Is the weather in the north better?", id="a question about what is there"),
        pytest.param("Thanks a lot!", id="nothing that was said"),
        pytest.param("Then please write a long and friendly letter about the berth", id="goes on"),
    ],
)
def test_other_prompts_do_not(query: str) -> None:
    assert pointing(query) < PLAINLY - NARROW


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("What did I say about the crane?", True),
        ("Can we go back to the fleet math?", True),
        ("A week ago the crane broke.", True),
        ("你之前推荐的酒店是哪家？", True),
        ("さっきの話は?", True),
        ("Which hotel is near the station?", False),
        ("请推荐一家酒店。", False),
        ("Write it down beforehand.", False),
        ("What was the name again?", True),
        ("Have we met before?", True),
        ("Can one paint the quay before it rains?", False),
        ("Somebody moved the crane again to the north quay.", False),
        (f"{'tide ' * 200}What did you tell me? {'tide ' * 200}", False),
        (f"Do you remember this? {'tide ' * 2000}", True),
        (f"{'tide ' * 2000}Do you remember this?", True),
    ],
    ids=range(15),
)
def test_words_that_speak_of_what_was_before(text: str, back: bool) -> None:
    assert looks_back(text) is back


@pytest.mark.parametrize(
    ("said", "query", "same"),
    [
        pytest.param("Thanks, that sounds great!", "That sounds great, thanks.", True, id="the same words"),
        pytest.param(
            "Do you think the crane should be painted before the quay?",
            "Do you think the crane should be painted before winter?",
            True,
            id="a remark with another end",
        ),
        pytest.param("The Halcyon got the northern berth.", "Which berth did the Halcyon get?", False, id="an answer"),
        pytest.param("Berth of the Halcyon: 7.", "Which berth has the Halcyon got?", False, id="a number alone is new"),
        pytest.param("The weather is fine.", "Which berth did the Halcyon get?", False, id="something else"),
        pytest.param("", "Which berth did the Halcyon get?", False, id="nothing"),
    ],
)
def test_what_repeats_the_prompt(said: str, query: str, same: bool) -> None:
    assert repeats(Passage.of(said), read(query)) is same


def test_a_prompt_that_was_said_before_does_not_point_back_for_that() -> None:
    query = "The pilot boat takes the eastern channel today."
    said, told = (
        Passage.of("The pilot boat takes the eastern channel."),
        Passage.of("The pilot boat draws little water."),
    )

    once = strength(query, [told], NEW, [told, *ALL])

    assert strength(query, [told, said], NEW, [told, *ALL]) == once
    assert strength(query, [told], NEW, [told, *ALL]) > strength(query, [said], NEW, [told, *ALL])


@pytest.mark.parametrize(("gap", "more"), [(-1.0, -GAP), (0.0, 0.0), (0.5, GAP / 2)])
def test_what_only_the_past_is_relevant_to_points_back_more(gap: float, more: float) -> None:
    query = "Which berth did the Halcyon get?"

    assert strength(query, OLD, NEW, ALL, gap) - strength(query, OLD, NEW, ALL) == pytest.approx(more)


@pytest.mark.parametrize(
    ("text", "share"),
    [("Where is it?", 1.0), ("It is gone.", 0.0), ("It is gone. Where is it?", 0.52), ("在哪里？", 1.0), ("", 0.0)],
)
def test_how_much_of_a_text_is_questions(text: str, share: float) -> None:
    assert asking(text) == pytest.approx(share, abs=0.01)
