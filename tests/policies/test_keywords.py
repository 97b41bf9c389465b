import pytest

from policies.keywords import keywords, overlap

CASES = [
    ("words", "The Parcel left BREMEN.", {"parcel", "left", "bremen"}),
    ("numbers-and-identifiers", "order_id 4711, A-12 x 9", {"order_id", "4711", "12"}),
    ("accents", "Größe und café", {"größe", "und", "café"}),
    ("chinese", "订单明天发货", {"订单", "单明", "明天", "天发", "发货"}),
    ("chinese-particles", "我的订单了", {"订单"}),
    ("japanese", "ラーメン", {"ラー", "ーメ", "メン"}),
    ("mixed", "iPhone手机OK", {"iphone", "手机"}),
    ("one-character", "x 好 !", set()),
    ("empty", "", set()),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_keywords_of_any_script(text: str, expected: set[str]) -> None:
    assert keywords(text) == expected


def test_only_the_first_fifty_words_count() -> None:
    assert len(keywords(" ".join(f"word{i}" for i in range(80)))) == 50
    assert "late" not in keywords("parcel " * 50 + "late")


def test_a_giant_text_is_read_only_at_its_beginning() -> None:
    assert keywords("the " * 200_000 + "end") == frozenset()
    assert keywords("start " + " " * 2_000_000 + "end") == {"start"}


def test_overlap_is_the_share_of_the_larger_set() -> None:
    assert overlap(frozenset("ab"), frozenset("bcde")) == 0.25
    assert overlap(frozenset(), frozenset()) == 0
