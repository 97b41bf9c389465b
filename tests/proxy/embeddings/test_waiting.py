"""Texts wait in the order in which they came, and their bytes are known at any time."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from proxy.embeddings.waiting import Texts
from tests.proxy.held import bytes_of

KEYS = st.sampled_from([bytes([n]) * 16 for n in range(6)])
STEPS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.text(max_size=9), st.just("clear"))), max_size=40)


@given(steps=STEPS)
def test_they_are_a_dictionary_in_order_that_counts(steps: list[tuple[bytes, str | None]]) -> None:
    texts, plain = Texts(), OrderedDict[bytes, str]()
    for key, text in steps:
        if text is None:
            assert texts.pop(key, None) == plain.pop(key, None)
        elif text == "clear":
            texts.clear(), plain.clear()
        else:
            texts[key] = plain[key] = text
            plain.move_to_end(key)
        assert (dict(texts), [*texts], [*reversed(texts)]) == (dict(plain), [*plain], [*reversed(plain)])
        assert texts.bytes >= sum(len(text.encode("utf-8", "surrogatepass")) for text in plain.values())
        assert (texts.bytes == 0) == (not plain)


def test_their_bytes_are_an_upper_bound_of_the_memory_taken() -> None:
    texts = Texts()
    for number in range(500):
        texts[number.to_bytes(16)] = f"{number} tide" * (number % 40)
        texts[number.to_bytes(17)] = f"{number} 🙂"

    assert bytes_of(texts) <= texts.bytes <= 2 * bytes_of(texts)
