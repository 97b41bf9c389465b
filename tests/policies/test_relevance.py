import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.relevance import Index, bm25, pooled, relevance
from policies.terms import read

WEATHER = ["Good morning!", "It is raining in the hills.", "Take a coat.", "The dinner is at eight.", "See you there."]
texts = st.lists(st.text(st.sampled_from("ab cd 12\n_./-。日本北京"), max_size=30), max_size=12)


def best(query: str, said: list[str], speakers: list[str] | None = None) -> int:
    return int(relevance(query, Index.of(said, speakers)).argmax())


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        pytest.param("Where did we leave order BX-20417?", "The parcel BX-20417 is with the neighbour.", id="order"),
        pytest.param("what broke in src/engine/pump.py", "Traceback: src/engine/pump.py line 3", id="path"),
        pytest.param("use certificate_88231 again", 'lookup({"payment": "certificate_88231"})', id="snake"),
        pytest.param("which colours were painted?", "I am painting it in a dark green colour", id="endings"),
        pytest.param("酒店的价格是多少", "这家酒店的价格是五百元一晚。", id="chinese"),
        pytest.param("Wie heißt der Bäcker?", "Der Bäcker heißt Holm.", id="umlauts"),
        pytest.param("预订 Aurora 酒店了吗", "Aurora 的预订已经完成。", id="mixed"),
        pytest.param("what was due on 3 May?", "due: 2024-05-03", id="date"),
        pytest.param("ホテルの料金は?", "ホテルの料金は一泊九千円です。", id="japanese"),
    ],
)
def test_the_text_that_shares_the_prompts_terms_comes_first(query: str, fact: str) -> None:
    for place in range(len(WEATHER) + 1):
        said = [*WEATHER[:place], fact, *WEATHER[place:]]

        assert best(query, said) == place


def test_an_identifier_is_matched_whole() -> None:
    said = ["room_1 is free", *WEATHER, "room_12 is free", *WEATHER, "room_123 is free"]

    assert best("Book room_12 please", said) == len(WEATHER) + 1


def test_an_answer_follows_its_question() -> None:
    said = [*WEATHER, "What is your dog called?", "Biscuit.", *WEATHER]

    scores = relevance("the name of my dog, what is it called?", Index.of(said))

    assert set(np.argsort(-scores)[:2]) == {5, 6}


def test_the_speaker_whom_the_prompt_names_comes_first() -> None:
    said = ["Skiing is what I like.", "Sailing is what I like.", *WEATHER]
    speakers = ["Ida", "Tom", "Ida", "Tom", "Ida", "Tom", "Ida"]

    assert best("What does Tom like?", said, speakers) == 1
    assert best("What does Ida like?", said, speakers) == 0


def test_a_text_is_not_found_by_whom_it_addresses() -> None:
    said = ["Ida, you have to see this, Ida!", "We saw the harbour.", "Fine weather, isn't it?", "I saw the ferry."]
    speakers = ["Tom", "Ida", "Tom", "Ida"]

    scores = relevance("Which ferry has Ida seen, and what did Tom see?", Index.of(said, speakers))

    assert scores.argmax() == 3
    assert relevance("Ida?", Index.of(said[:3], speakers[:3])).argmax() == 1


def test_naming_every_speaker_favours_none() -> None:
    said = ["Skiing!", "Sailing!", "Skiing!", "Sailing!"]
    both = relevance("Ida and Tom", Index.of(said, ["Ida", "Tom", "Ida", "Tom"]))
    neither = relevance("them", Index.of(said, ["Ida", "Tom", "Ida", "Tom"]))

    assert both.max() - both.min() <= 1
    assert not neither.any()


def test_a_date_leads_to_what_was_said_on_it_and_soon_after() -> None:
    days = ["[Session 1 - 9:00 am on 2 March, 2024]\nHi!", "[Session 2 - 9:00 am on 9 May, 2024]\nHi!"]
    said = [days[0], "I went bowling.", "Nice.", *["mm"] * 8, days[1], "I went rowing yesterday.", "Nice."]

    for speakers in (None, ["Ida", "Tom"] * 7):
        scores = relevance("What happened on May 8, 2024?", Index.of(said, speakers))

        assert scores[11:].min() > scores[:11].max()


def test_vectors_find_what_words_do_not() -> None:
    said = ["My car broke down.", *WEATHER]
    vectors: list[np.ndarray | None] = [np.array([0.0, 1.0], dtype=np.float32) for _ in said]
    vectors[0] = np.array([1.0, 0.0], dtype=np.float32)

    scores = relevance("vehicle", Index.of(said), vectors, np.array([1.0, 0.0], dtype=np.float32))

    assert scores.argmax() == 0


def test_a_long_text_counts_by_its_best_piece() -> None:
    said = ["x"] * 6
    vectors: list[np.ndarray | None] = [np.array([[0.6, 0.8]], dtype=np.float16) for _ in said]
    vectors[4] = np.array([[0, 1], [0, 1], [1, 0]], dtype=np.float16)

    scores = relevance("q", Index.of(said), vectors, np.array([1, 0], dtype=np.float16))

    assert scores.argmax() == 4


def test_a_text_without_a_vector_counts_by_its_words() -> None:
    said = [*WEATHER, "The invoice is paid.", *WEATHER]
    vectors: list[np.ndarray | None] = [np.array([0.1 * (i % 3), 1.0]) for i in range(len(said))]
    vectors[5] = None

    assert relevance("Is the invoice paid?", Index.of(said), vectors, np.array([1.0, 0.0])).argmax() == 5


def test_vectors_that_are_not_one_for_each_text_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each of 2 passages, got 1"):
        relevance("q", Index.of(["a", "b"]), [None])


@pytest.mark.parametrize("query", ["", "zzz", "?!", "the of and"])
def test_a_prompt_that_says_nothing_favours_none(query: str) -> None:
    assert not relevance(query, Index.of(WEATHER)).any()


@given(texts, texts, st.text(max_size=20))
@settings(max_examples=80, deadline=None)
def test_extending_equals_building_anew(one: list[str], other: list[str], query: str) -> None:
    grown, whole = Index.of(one).extended(other), Index.of([*one, *other])

    assert grown == whole
    assert np.array_equal(relevance(query, grown), relevance(query, whole))


@given(texts, st.text(max_size=30))
@settings(max_examples=80, deadline=None)
def test_scores_are_between_0_and_1_and_finite(said: list[str], query: str) -> None:
    scores = relevance(query, Index.of(said))

    assert scores.shape == (len(said),)
    assert ((scores >= 0) & (scores <= 1)).all()


def test_what_was_read_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.of(WEATHER)
    seen: list[str] = []
    monkeypatch.setattr("policies.relevance.read", lambda text, speaker: seen.append(text) or read(text, speaker))

    index.extended(["one more"])

    assert seen == ["one more"]


def test_bm25_counts_rare_terms_more_and_long_texts_less() -> None:
    index = Index.of(["cat dog", "cat", "cat bird " + "filler " * 40, "dog dog cat"])

    scores = bm25(read("bird"), index), bm25(read("cat"), index)

    assert scores[0].max() > scores[1].max()
    assert scores[1][1] > scores[1][2]


def test_pooled_vectors_have_length_1() -> None:
    assert np.allclose(np.linalg.norm(pooled(np.array([[1.0, 0.0], [0.0, 1.0]]))), 1)
    assert not pooled(np.zeros((2, 3))).any()


def test_a_thousand_texts_are_ranked_in_a_few_milliseconds() -> None:
    index = Index.of(f"Message {i} about item_{i % 77} and the usual {i % 5} things" for i in range(1000))
    vectors: list[np.ndarray | None] = list(np.random.default_rng(1).normal(size=(1000, 384)).astype(np.float16))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        relevance("Which of the usual things did item_33 need?", index, vectors, vectors[0])
        times.append(time.perf_counter() - start)

    assert min(times) < 0.02  # 2.5 ms where nothing else runs
