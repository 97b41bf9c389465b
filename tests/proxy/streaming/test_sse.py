from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.streaming.sse import Events


def events(*pieces: bytes, limit: int = 100) -> tuple[list[tuple[bytes, bytes]], Events]:
    made = Events(limit)
    found = [event for piece in pieces for event in made.feed(piece)]
    return [*found, *made.close()], made


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([b"data: a\n\n"], [(b"", b"a")], id="one"),
        pytest.param([b"data:a\n\ndata:  b\n\n"], [(b"", b"a"), (b"", b" b")], id="one space is dropped"),
        pytest.param([b"event: x\ndata: a\n\ndata: b\n\n"], [(b"x", b"a"), (b"", b"b")], id="a name is for one event"),
        pytest.param([b"data: a\ndata\ndata: b\n\n"], [(b"", b"a\nb")], id="several lines"),
        pytest.param([b"event: x\n\ndata: a\n\n"], [(b"", b"a")], id="a name alone is no event"),
        pytest.param([b"data: a\r", b"\n\r", b"\ndata: b\r\n\r\n"], [(b"", b"a"), (b"", b"b")], id="CRLF split"),
        pytest.param([b"data: a\r\rdata: b\r", b"\r"], [(b"", b"a"), (b"", b"b")], id="CR"),
        pytest.param(
            [b"data: a\x0b\x0c\x1c\xc2\x85b\n\n"], [(b"", b"a\x0b\x0c\x1c\xc2\x85b")], id="no other line ends"
        ),
        pytest.param([b"da", b"ta", b": a", b"\n", b"\n"], [(b"", b"a")], id="in pieces"),
        pytest.param([b"data: a"], [(b"", b"a")], id="cut off"),
        pytest.param([b": c\nid: 1\nretry: 2\n\n"], [], id="nothing in it"),
    ],
)
def test_events_are_found(pieces, expected) -> None:
    found, made = events(*pieces)
    assert found == expected
    assert not made.truncated


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"data: " + b"x" * 200 + b"\n\n"], id="a line"),
        pytest.param([b": c\n\n", b"data: " + b"x" * 200 + b"\n\n"], id="a line that is not the first"),
        pytest.param([b"data: " + b"x" * 60, b"x" * 60, b"x" * 60 + b"\n", b"\n"], id="a line in pieces"),
        pytest.param([b"data: " + b"x" * 60 + b"\ndata: " + b"x" * 60 + b"\ndata: y\n\n"], id="many lines"),
    ],
)
def test_an_event_over_the_limit_is_left_out_as_a_whole(pieces) -> None:
    found, made = events(*pieces, b"data: next\n\n")
    assert found == [(b"", b"next")]
    assert made.truncated


def test_lines_that_are_no_events_are_kept_apart() -> None:
    found, made = events(b'{"error":\n', b' "x"}\n', b"data: a\n\n")
    assert found == [(b"", b"a")]
    assert bytes(made.stray) == b'{"error":\n "x"}\n'


LINES = [
    b"data: a",
    b"data:b",
    b"data",
    b"data: x\n\n",
    b"event: e",
    b": c",
    b"{}",
    b"\n",
    b"\n\n",
    b"\r",
    b"\xef\xbb\xbf",
]


@given(pieces=st.lists(st.sampled_from(LINES), max_size=30), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_events_are_the_same_however_their_bytes_come(pieces: list[bytes], cuts: list[int]) -> None:
    """One byte at a time no event is ever whole in what comes."""
    data = b"".join(pieces)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    lots = [data[start:end] for start, end in pairwise([0, *ends])]

    def read(lots: list[bytes]) -> tuple[object, ...]:
        events = Events(2000)
        found = [event for lot in lots for event in events.feed(lot)] + list(events.close())
        return found, bytes(events.stray), events.truncated

    assert read(lots) == read([data[at : at + 1] for at in range(len(data))])
