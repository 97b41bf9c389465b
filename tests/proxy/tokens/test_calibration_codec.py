import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.tokens.calibration import RECENT, Calibration, Past, start
from proxy.tokens.calibration_codec import VERSION, decode, decode_past, encode, encode_past
from proxy.tokens.counts import Counts
from proxy.tokens.ratios import Ratios

PRIOR = Ratios(1.15, 1.45, 1.3, 1.4)


def learned(n: int) -> Calibration:
    known, past = start(PRIOR), None
    for i in range(n):
        counts = Counts(latin=1000 + 37 * i, code=100 * (i % 7), cjk=50 * (i % 3), fixed=50, messages=5 + i)
        actual = 1500 + 40 * i
        known = known.observe(counts, actual, past)
        past = Past(counts, actual) if i % 4 else None
    return known


@pytest.mark.parametrize("n", [0, 1, 400])
def test_a_calibration_comes_back_as_it_was(n: int) -> None:
    known = learned(n)
    back = decode(encode(known))

    assert back is not None
    assert back == known
    assert back.estimate(Counts(latin=1000)) == known.estimate(Counts(latin=1000))


def test_it_is_small_however_much_was_seen() -> None:
    known = learned(1500)

    assert len(known.following) == RECENT
    assert len(encode(known)) < 800


def test_another_version_is_not_read() -> None:
    data = encode(learned(3))

    assert decode(bytes((VERSION + 1,)) + data[1:]) is None


def broken(**fields: object) -> bytes:
    """An entry with some of its fields replaced, by their place."""
    places = ("prior", "products", "targets", "seen", "opening", "following", "shortfalls")
    entry = msgspec.msgpack.decode(encode(learned(3))[1:])
    for name, value in fields.items():
        entry[places.index(name)] = value
    return bytes((VERSION,)) + msgspec.msgpack.encode(entry)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes((VERSION,)),
        encode(learned(3))[:-1],
        broken(products=[0.0] * 27),
        broken(products=[float("nan")] * 28),
        broken(products=[-1.0] * 28),
        broken(targets=[float("inf")] * 7),
        broken(targets=[1e300] * 7),
        broken(prior=[0.0, 1.0, 1.0, 1.0]),
        broken(prior=[1.0, 1.0, 1.0]),
        broken(opening=bytes(RECENT + 1)),
        broken(seen=-1),
        broken(shortfalls="many"),
    ],
    ids=[
        *("empty", "version alone", "cut", "too few", "nan", "negative", "inf", "huge", "no ratio", "few ratios"),
        *("too many errors", "seen", "type"),
    ],
)
def test_bytes_of_no_calibration_are_none(data: bytes) -> None:
    assert decode(data) is None


@given(st.binary(max_size=400), st.integers(0, 700))
@settings(max_examples=200, deadline=None)
def test_no_bytes_raise(noise: bytes, at: int) -> None:
    data = encode(learned(20))
    mixed = data[:at] + noise + data[at + len(noise) :]

    for each in (noise, bytes((VERSION,)) + noise, mixed):
        known = decode(each)
        assert known is None or known.estimate(Counts(latin=1000, messages=1)) >= 1


def test_sums_that_no_observations_have_do_not_break_it() -> None:
    """Not positive definite: the equations may have no solution, or a wild one, which the bounds hold."""
    products = [0.0] * 28
    for row in range(7):
        for column in range(row):
            products[row * (row + 1) // 2 + column] = 1e6

    known = decode(broken(products=products))

    assert known is None or 0.5 <= min(known.weights[:4]) <= max(known.weights[:4]) <= 6


def test_a_past_comes_back_as_it_was() -> None:
    past = Past(Counts(latin=4000, code=1, cjk=2, other=3, calls=4, schemas=5, fixed=6, messages=7), 6000)

    assert decode_past(encode_past(past)) == past
    assert len(encode_past(past)) < 50


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode_past(Past(Counts(latin=1), 5))[:-1],
        bytes((VERSION + 1,)) + encode_past(Past(Counts(latin=1), 5))[1:],
        encode_past(Past(Counts(latin=-1), 5)),
        encode_past(Past(Counts(latin=1), 0)),
        encode_past(Past(Counts(latin=10**12), 5)),
        encode(learned(3)),
    ],
    ids=["nothing", "cut", "another version", "less than nothing", "no tokens", "no prompt", "a calibration"],
)
def test_what_is_no_past_is_not_read(data: bytes) -> None:
    assert decode_past(data) is None
