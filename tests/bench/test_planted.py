import pytest

from bench.quality.planted import EARLY, SHORTEST, dialogues


def test_each_fact_is_said_once_early_by_a_user_and_asked_for_without_its_value() -> None:
    for one in dialogues(3, 200, 20, seed=7):
        messages = one.request["messages"]
        assert 200 * SHORTEST <= len(messages) <= 201
        assert len(one.record["qas"]) == 20
        for question in one.record["qas"]:
            (index,) = question["evidence"]
            assert messages[index]["role"] == "user"
            assert index <= EARLY * len(messages)
            assert question["answer"] in messages[index]["content"]
            assert question["answer"] not in question["question"]
            others = [message["content"] for i, message in enumerate(messages) if i != index]
            assert not any(f" {question['answer']}." in text for text in others)


def test_each_has_others_of_its_kind_beside_it() -> None:
    (one,) = dialogues(1, 200, 14, seed=3)
    said = [message["content"] for message in one.request["messages"]]

    assert {question["category"] for question in one.record["qas"]} == {
        *("code", "amount", "address", "diet", "date", "serial", "colour")
    }
    assert sum("is allergic to" in text for text in said) == 4


def test_lengths_differ() -> None:
    assert len({len(one.request["messages"]) for one in dialogues(8, 200, 4, seed=7)}) > 3


def test_the_same_seed_gives_the_same_dialogues() -> None:
    assert [*dialogues(2, 60, 6, seed=1)] == [*dialogues(2, 60, 6, seed=1)]
    assert [*dialogues(1, 60, 6, seed=1)] != [*dialogues(1, 60, 6, seed=2)]


def test_as_many_facts_as_it_allows_fit() -> None:
    (one,) = dialogues(1, 400, 34, seed=5)

    assert len({tuple(question["evidence"]) for question in one.record["qas"]}) == 34


@pytest.mark.parametrize(
    ("messages", "facts", "most"), [(20, 4, 1), (400, 35, 34), (400, 0, 34)], ids=["no room", "no subjects", "none"]
)
def test_more_than_there_is_room_for_is_refused(messages: int, facts: int, most: int) -> None:
    with pytest.raises(ValueError, match=rf"facts: must be 1 to {most} in {messages} messages, got {facts}"):
        next(dialogues(1, messages, facts, seed=1))
