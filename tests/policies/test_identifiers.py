import pytest

from policies.identifiers import LIMIT, identifiers, standing
from tests.policies.sample_windows import slot

FILLER = "and nothing more was said of it "


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("Order #W3445693, please!", {"w3445693"}, id="order"),
        pytest.param("It is in src/core/linter.py:17.", {"src/core/linter.py:17"}, id="path"),
        pytest.param(
            '{"id": "certificate_7504069", "when": "2024-05-26"}', {"certificate_7504069", "2024-05-26"}, id="json"
        ),
        pytest.param("ask Mia.Garcia@example.com", {"mia.garcia@example.com"}, id="address"),
        pytest.param("订单HAT233已发货", {"hat233"}, id="among-cjk"),
        pytest.param("a well-known word, and 12 more", set(), id="words-and-small-numbers"),
        pytest.param(f"x1{'y' * 200}", set(), id="blob"),
        pytest.param("", set(), id="nothing"),
    ],
)
def test_identifiers_have_digits_or_joints(text: str, named: set[str]) -> None:
    assert identifiers(text) == named


def test_a_giant_text_is_read_at_both_ends() -> None:
    text = f"first_id {FILLER * LIMIT} middle_id {FILLER * LIMIT} last_id"
    assert identifiers(text) == {"first_id", "last_id"}


def test_what_is_still_spoken_of_stands_above_what_is_newer_and_is_not() -> None:
    slots = [
        slot("old", text="found reservation HAT233"),
        slot("spoken", text="found reservation ZFA04Y"),
        slot("newer", text="found reservation 4WQ150"),
        slot("latest", text="now book ZFA04Y"),
    ]
    worth = standing(slots, {one.id for one in slots})
    assert worth["spoken"] > worth["newer"] > worth["old"]
    assert worth["spoken"] > worth["latest"], "a slot's own identifiers are no use of it"


def test_what_everything_names_tells_little() -> None:
    slots = [slot(f"m{n}", text="in src/app.py") for n in range(20)]
    slots[3] = slot("m3", text="in src/app.py, see docs/notes.md")
    slots[19] = slot("m19", text="in src/app.py, see docs/notes.md")
    worth = standing(slots, {"m3", "m4", "m19"})
    assert worth.keys() == {"m3", "m4", "m19"}
    assert max(worth, key=lambda id_: worth[id_]) == "m3"
