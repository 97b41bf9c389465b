import pytest

from policies.dates import Date, dates, heading, nearness


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("due 2024-05-03.", [Date(2024, 5, 3)], id="iso"),
        pytest.param("on 8 May, 2023", [Date(2023, 5, 8)], id="day-month-year"),
        pytest.param("the 21st of June", [Date(None, 6, 21)], id="ordinal"),
        pytest.param("by March 4th", [Date(None, 3, 4)], id="month-day"),
        pytest.param("Sept. 30, 2022", [Date(2022, 9, 30)], id="abbreviated"),
        pytest.param("我在5月2日去了", [Date(None, 5, 2)], id="chinese"),
        pytest.param("2023年4月27号", [Date(2023, 4, 27)], id="chinese-year"),
        pytest.param("sometime in July", [Date(None, 7, None)], id="month"),
        pytest.param("since March 2022", [Date(2022, 3, None)], id="month-year"),
        pytest.param("in May, on 3 May", [Date(None, 5, 3)], id="days-win"),
        pytest.param("I may march in step 3", [], id="words"),
        pytest.param("2024-19-44 and 99 May", [], id="no-dates"),
        pytest.param("", [], id="empty"),
    ],
)
def test_dates_are_read(text: str, expected: list[Date]) -> None:
    assert list(dates(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[Session 1 - 1:56 pm on 8 May, 2023]\nHi", Date(2023, 5, 8), id="session"),
        pytest.param("[2023-04-27]\n你好", Date(2023, 4, 27), id="bracket"),
        pytest.param("Hi\n8 May 2023", None, id="second-line"),
        pytest.param(
            "We talked for so long about so many other things that day, it was the 8 May 2023", None, id="prose"
        ),
        pytest.param("in May 2023", None, id="month-alone"),
    ],
)
def test_a_short_first_line_heads_what_follows(text: str, expected: Date | None) -> None:
    assert heading(text) == expected


@pytest.mark.parametrize(
    ("asked", "said", "expected"),
    [
        pytest.param(Date(2023, 5, 8), Date(2023, 5, 8), 1.0, id="same"),
        pytest.param(Date(None, 5, 8), Date(2023, 5, 8), 1.0, id="open-year"),
        pytest.param(Date(2022, 5, 8), Date(2023, 5, 8), 0.0, id="other-year"),
        pytest.param(Date(None, 5, 8), Date(None, 5, 7), 0.0, id="before"),
        pytest.param(Date(None, 5, 8), Date(None, 5, 30), 0.0, id="long-after"),
        pytest.param(Date(None, 5, None), Date(2023, 5, 30), 1.0, id="month"),
        pytest.param(Date(None, 5, None), Date(2023, 6, 1), 0.0, id="other-month"),
    ],
)
def test_nearness(asked: Date, said: Date, expected: float) -> None:
    assert nearness(asked, said) == expected


def test_a_few_days_after_is_near() -> None:
    assert 0 < nearness(Date(None, 5, 8), Date(None, 5, 11)) < nearness(Date(None, 5, 8), Date(None, 5, 9)) < 1
