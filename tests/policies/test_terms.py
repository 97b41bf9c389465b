import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.dates import Date
from policies.terms import LIMIT, fold, read


@pytest.mark.parametrize(
    ("forms", "stem"),
    [
        pytest.param(["paint", "paints", "painted", "painting"], "paint", id="verb"),
        pytest.param(["city", "cities"], "citi", id="y"),
        pytest.param(["stop", "stopped", "stopping"], "stop", id="doubled"),
        pytest.param(["use", "uses"], "use", id="short"),
        pytest.param(["house", "houses"], "hous", id="e"),
        pytest.param(["glass"], "glass", id="ss"),
        pytest.param(["bus"], "bus", id="three"),
        pytest.param(["größen"], "größen", id="other-language"),
        pytest.param(["k8s"], "k8s", id="digits"),
    ],
)
def test_forms_of_a_word_meet(forms: list[str], stem: str) -> None:
    assert {fold(form) for form in forms} == {stem}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        pytest.param("the of and", set(), id="stop-words"),
        pytest.param("Order BX-20417", {"order", "bx", "20417", "=bx-20417"}, id="order"),
        pytest.param("certificate_3765", {"certificat", "3765", "=certificate_3765"}, id="snake"),
        pytest.param("src/a.py", {"src", "py", "=src/a.py"}, id="path"),
        pytest.param("10.0.0.1:80", {"10", "0", "1", "80", "=10.0.0.1:80"}, id="address"),
        pytest.param("酒店价格", {"酒店", "店价", "价格"}, id="chinese"),
        pytest.param("好", {"好"}, id="one-character"),
        pytest.param("on 2024-05-03", {"2024", "05", "03", "=2024-05-03", "=5-3"}, id="date"),
        pytest.param("3 May", {"3", "may", "=5-3"}, id="date-in-words"),
        pytest.param("well-known", {"well", "known"}, id="hyphen"),
        pytest.param("A. B", {"b"}, id="end-of-sentence"),
    ],
)
def test_terms_of_a_text(text: str, terms: set[str]) -> None:
    assert set(read(text).counts) == terms


def test_a_speakers_name_is_a_term_and_no_part_of_the_heading() -> None:
    terms = read("[2024-05-03]\nHi", "Ida")

    assert "ida" in terms.counts
    assert terms.heading == Date(2024, 5, 3)


def test_of_a_very_long_text_both_ends_are_read() -> None:
    terms = read("alpha " + "x " * LIMIT + "omega")

    assert {"alpha", "omega"} <= terms.counts.keys()


@given(st.text(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    terms = read(text)

    assert terms.length == sum(terms.counts.values())
    assert all(terms.counts.values())


@pytest.mark.parametrize("unit", ["a", "a-", "1.", "_", "=", "好", "9/", "[", "in ", "2024-", "May "], ids=repr)
def test_no_text_takes_long(unit: str) -> None:
    text = (unit * LIMIT)[:LIMIT]
    start = time.perf_counter()

    read(text)

    assert time.perf_counter() - start < 2  # 0.2 s where nothing else runs


def test_a_blob_is_one_term_however_long() -> None:
    blob = "Qm9v" * 5_000

    assert set(read(f"attached {blob} ends").counts) == {"attach", blob.lower(), "end"}
