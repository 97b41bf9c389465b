"""Where the sentences of a text begin and end, in any script, code and logs included. (pure)"""

import re
from collections.abc import Iterator

LONGEST = 400
"""Characters. What has no end for longer than that, a log line or a blob, is cut at white space, or anywhere."""

_BREAK = re.compile(r"(?<=[.!?…])[\"'”’)\]]{0,3}[ \t]+|(?<=[。！？；])[」』”’）]{0,3}|[\r\n]+")


def spans(text: str) -> tuple[tuple[int, int], ...]:
    """The sentences as (start, end), in order, without the white space between them."""
    found: list[tuple[int, int]] = []
    start = 0
    for match in _BREAK.finditer(text):
        found += _pieces(text, start, match.end())
        start = match.end()
    return (*found, *_pieces(text, start, len(text)))


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    while end - start > LONGEST:
        at = max(text.rfind(" ", start + LONGEST // 2, start + LONGEST), start + LONGEST // 2)
        at = at if text[at].isspace() else start + LONGEST
        yield start, at
        start = at
        while start < end and text[start].isspace():
            start += 1
    if start < end:
        yield start, end
