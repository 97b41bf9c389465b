"""Dates that a text names, in English, Chinese, Japanese and ISO notation, and how near two of them are."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>[12][0-9]{3})"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        rf"\b{_YEAR}[-/.](?P<month>[01]?[0-9])[-/.](?P<day>[0-3]?[0-9])\b",
        rf"\b{_DAY}\s(?:of\s)?{_MONTH}(?:,?\s{_YEAR})?",
        rf"\b{_MONTH}\s{_DAY}\b(?:,?\s{_YEAR})?",
        rf"(?:{_YEAR}\s?年\s?)?(?<![0-9])(?P<month>[01]?[0-9])\s?月(?:\s?(?P<day>[0-3]?[0-9])\s?[日号號])?",
        rf"\b(?:in\s{_MONTH}|(?<!\d\s){_MONTH.replace('<name>', '<alone>')},?\s{_YEAR})",
    )
)
_NUMERIC, _DAY_FIRST, _MONTH_FIRST, _CJK, _MONTH_ALONE = _FORMS
_DIGIT = re.compile(r"[0-9]")
_JOINED = re.compile(r"[0-9][-/.][0-9]")
_WORD = re.compile(r"[a-z0-9]+", re.IGNORECASE | re.ASCII)
_MONTH_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        "jan january feb february mar march apr april may jun june jul july aug august sep sept september oct october "
        "nov november dec december",
    )
)
_DAYS_PER_MONTH = 30.44
_HEADING = re.compile(rf"\s*(?:[\[(#*=<—【（-]|[0-9]|{_MONTH})(?=.{{0,80}}$)", re.IGNORECASE)
REACH = 7.0


@dataclass(frozen=True, slots=True)
class Date:
    """A day, or a whole month where `day` is None; the year is None where the text leaves it open."""

    year: int | None
    month: int
    day: int | None


def dates(text: str, words: Iterable[str] | None = None) -> tuple[Date, ...]:
    """The dates in `text`; months without a day only where it names no day.

    `words` are its runs of ASCII letters and digits, in lower case, where they are known.
    """
    found = tuple(dict.fromkeys(_read(text, _WORD.findall(text.lower()) if words is None else words)))
    return tuple(date for date in found if date.day is not None) or found


def heading(text: str) -> Date | None:
    """The day that a short first line names, if it is one of a bracket, a mark or a date and text follows it.

    That is how chats and diaries say when what follows was said.
    """
    line, _, rest = text.partition("\n")
    if not rest or not _HEADING.match(line):
        return None
    return next((date for date in dates(line) if date.day is not None), None)


def nearness(asked: Date, said: Date) -> float:
    """How near what was said on the day `said` is to the date that is asked for, 0..1.

    1 on the day itself or anywhere in a month that is asked for without a day; what happened is told on its day or in
    the days after it ("yesterday", "last weekend"), so this falls to 0 over the `REACH` days that follow, and is 0
    before it.
    """
    if asked.year is not None and said.year is not None and asked.year != said.year:
        return 0.0
    if asked.day is None or said.day is None:
        return float(asked.month == said.month)
    later = (said.month - asked.month) * _DAYS_PER_MONTH + said.day - asked.day
    return max(0.0, 1 - abs(later) / REACH) if later > -1 else 0.0


def _read(text: str, words: Iterable[str]) -> Iterator[Date]:
    for form in _forms(text, words):
        for match in form.finditer(text):
            part = match.groupdict()
            name = part.get("name") or part.get("alone")
            month = _MONTHS[name[:3].lower()] if name else int(part["month"])
            day, year = part.get("day"), part.get("year")
            if 1 <= month <= 12 and (day is None or 1 <= int(day) <= 31):
                yield Date(int(year) if year else None, month, int(day) if day else None)


def _forms(text: str, words: Iterable[str]) -> Iterator[re.Pattern[str]]:
    """The forms that there may be any of: most texts have none, and looking for all takes long."""
    if _JOINED.search(text):
        yield _NUMERIC
    named = not _MONTH_WORDS.isdisjoint(words)
    if named and _DIGIT.search(text):
        yield _DAY_FIRST
        yield _MONTH_FIRST
    if "月" in text:
        yield _CJK
    if named:
        yield _MONTH_ALONE
