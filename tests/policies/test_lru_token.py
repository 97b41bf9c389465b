from hypothesis import given, settings
from hypothesis import strategies as st

from policies.keywords import keywords, overlap
from policies.lru_token import Access, LruToken, accesses
from policies.types import Context
from tests.policies.sample_windows import TEXTS, slot, window

TALK = (
    slot("u1", text="My parcel 4711 has not arrived in Bremen"),
    slot("a2", "assistant", text="Which colour do you like best?"),
    slot("u3", text="Parcel 4711 was due in Bremen yesterday"),
    slot("a4", "assistant", text="Let us talk about football instead"),
    slot("u5", text="Has parcel 4711 arrived in Bremen?", pinned=True),
)


def test_later_messages_that_share_keywords_are_accesses() -> None:
    assert accesses(TALK) == {
        "u1": Access(turn=5, references=2),
        "a2": Access(turn=2, references=0),
        "u3": Access(turn=5, references=1),
        "a4": Access(turn=4, references=0),
    }


def test_what_was_never_taken_up_again_goes_first() -> None:
    plan = LruToken().plan(window(*TALK), 20, Context())
    assert [action.slot for action in plan.actions] == ["a2", "a4", "u1"]  # type: ignore[union-attr]
    assert plan.actions[2].reason == "last accessed 0 turns ago, referenced 2 times"


def test_exactly_the_threshold_is_no_reference() -> None:
    ten = [f"word{i}" for i in range(10)]
    first, second = slot("u1", text=" ".join(ten)), slot("u2", text=" ".join(ten[:3] + [f"x{i}" for i in range(7)]))
    assert accesses((first, second))["u1"].references == 0
    assert accesses((first, second), threshold=0.29)["u1"].references == 1


def test_chinese_messages_refer_to_each_other() -> None:
    first, later = slot("u1", text="我的订单什么时候发货？"), slot("u3", text="订单什么时候发货，可以告诉我吗")
    assert accesses((first, slot("a2", text="天气很好"), later))["u1"] == Access(turn=3, references=1)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.sampled_from(TEXTS) | st.text("abc ", max_size=30), max_size=20), threshold=st.floats(0, 0.9))
def test_accesses_are_those_of_comparing_every_pair(texts: list[str], threshold: float) -> None:
    slots = [slot(f"s{i}", text=text) for i, text in enumerate(texts)]
    for i, one in enumerate(slots):
        later = [
            other.turn
            for other in slots[i + 1 :]
            if (shared := overlap(keywords(one.text), keywords(other.text))) > threshold
            and shared * max(len(keywords(one.text)), len(keywords(other.text)), 1)
            > threshold * max(len(keywords(one.text)), len(keywords(other.text)), 1)
        ]
        assert accesses(slots, threshold)[one.id] == Access(max(later, default=one.turn), len(later))
