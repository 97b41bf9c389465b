import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.tokens.ratios import EXACT, NOTHING, Classes, Ratios, classify


@pytest.mark.parametrize(
    ("text", "largest"),
    [
        ("The ferry leaves at noon, doesn't it?", "latin"),
        ("Où est la bibliothèque “étrange”…", "latin"),
        ('{"a": [1, 2.5, {"b": 0x7f}], "c": null}', "code"),
        ("2026-11-30 12:45:03.117", "code"),
        ("渡轮中午出发", "cjk"),
        ("フェリーは正午に出ます", "cjk"),
        ("페리는 정오에 출발합니다", "cjk"),
        ("Паром уходит в полдень", "other"),
        ("العبارة تغادر ظهرا", "other"),
        ("😀😀😀", "other"),
    ],
)
def test_a_text_is_classed_by_its_script(text: str, largest: str) -> None:
    classes = classify(text, 100)

    assert max(classes._asdict().items(), key=lambda item: item[1])[0] == largest


@given(st.text(min_size=1), st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_the_classes_share_out_all_tokens(text: str, tokens: int) -> None:
    classes = classify(text, tokens)

    assert sum(classes) == tokens
    assert min(classes) >= 0


def test_the_empty_text_has_no_classes() -> None:
    assert classify("", 0) == NOTHING


@pytest.mark.parametrize(
    ("ratios", "estimate"),
    [(EXACT, 10), (Ratios(1.1, 1.0, 1.0, 1.0), 11), (Ratios(1.0, 2.0, 3.0, 4.0), 30), (Ratios(1 / 3, 0, 0, 0), 1)],
    ids=["exact", "rounded up", "each its own", "no more than it is"],
)
def test_each_class_has_its_ratio_and_the_sum_is_rounded_up(ratios: Ratios, estimate: int) -> None:
    classes = Classes(3, 0, 0, 0) if ratios.code == 0 else Classes(1, 2, 3, 4)

    assert ratios.scale(classes) == estimate


@pytest.mark.parametrize(
    ("ratios", "message", "schemas"),
    [
        (Ratios(code=2.0), 2 * 10 + 7, 30 + 7),
        (Ratios(code=2.0, calls=0.5), 5 + 7, 30 + 7),
        (Ratios(schemas=0.0), 10 + 7, 0),
        (Ratios(message=-3.0), 10 + 7 - 3, 30 + 7),
        (Ratios(message=-30.0), 0, 30 + 7),
        (Ratios(factor=1.5), 26, 56),
    ],
    ids=["calls are as code", "calls", "schemas left out", "a message", "never negative", "everything"],
)
def test_what_is_learned_of_a_model_has_its_place(ratios: Ratios, message: int, schemas: int) -> None:
    assert ratios.whole(Classes(0, 0, 0, 0, calls=10), 7) == message
    assert ratios.beside(Classes(30, 0, 0, 0), 7) == schemas
