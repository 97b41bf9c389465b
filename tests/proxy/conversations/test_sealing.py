"""What is sealed can be read with its key alone, and not changed without being noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversations.known import Entry
from proxy.conversations.ledger import Ledger
from proxy.conversations.ledger_codec import decode, encode
from proxy.conversations.sealing import Sealer, derive

KEY = derive(b"one").seal


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_what_was_sealed_comes_back(plain: bytes) -> None:
    sealed = Sealer(KEY).seal(plain)

    assert Sealer(KEY).open(sealed) == plain
    assert Sealer(derive(b"other").seal).open(sealed) is None


def test_a_text_is_never_sealed_the_same_way_twice() -> None:
    sealer = Sealer(KEY)

    assert sealer.seal(b"text") != sealer.seal(b"text")


@settings(deadline=None)
@given(st.integers(0, 31), st.integers(1, 255))
def test_a_change_is_noticed(position: int, change: int) -> None:
    sealed = bytearray(Sealer(KEY).seal(b"text"))
    sealed[position] ^= change

    assert Sealer(KEY).open(bytes(sealed)) is None


@pytest.mark.parametrize("length", [0, 11, 12, 27])
def test_what_is_too_short_is_nothing(length: int) -> None:
    assert Sealer(KEY).open(bytes(length)) is None


def test_every_worker_derives_the_same_secrets_from_a_key() -> None:
    one, again, other = derive(b"one"), derive(b"one"), derive(b"other")

    assert one == again
    assert len({one.salt, one.seal, other.salt, other.seal}) == 4
    assert len(derive(b"x" * 1_000).seal) == 32


def test_secrets_do_not_show() -> None:
    assert repr(derive(b"one")) == "Secrets()"


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(ValueError, match="state key: must not be empty"):
        derive(b"")


def test_placeholders_of_a_stored_ledger_are_sealed() -> None:
    entry = Entry(ledger=Ledger(clears={3: "[ticket 4711 left out]"}))
    raw = encode(entry, Sealer(KEY))

    assert b"4711" in encode(entry)
    assert b"4711" not in raw
    assert decode(raw, Sealer(KEY)) == entry
    assert decode(raw, Sealer(derive(b"other").seal)) is None
