import random
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.tokens import pieces, tokenizers

PROSE = "The ferry leaves at noon; it's late today, so don't run. (Platform 12, car \"B\")\n\nAsk again at 11:45? "
CHINESE = "渡轮中午出发，今天晚点了；请不要跑。我们在十二号站台等你，好吗？"
CODE = 'def f(x: int) -> str:\n    return {"a": [x, 1.5], "b": f"{x!r}"}.get("a")  # why not\n\n\n'
BASE64_LINES = ("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAxMjM0\n") * 2
MIXED = "Ünïcödé wörds 😀😀 и кириллица 漢字 かな 한국어 \r\n\r\n\t indented   text!!! ¿qué? "


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base", "o200k_harmony"])
@pytest.mark.parametrize(
    "text", [PROSE, CHINESE, CODE, BASE64_LINES, MIXED], ids=["prose", "chinese", "code", "base64 lines", "mixed"]
)
def test_ordinary_text_counts_the_same_in_pieces(encoding: str, text: str) -> None:
    loaded = tokenizers.load(encoding)
    long = text * (5 * pieces.PIECE // len(text))

    assert pieces.count(loaded, long) == len(loaded.encode_ordinary(long))


@given(
    st.lists(
        st.sampled_from([*"ab1,.;:(\"'/ \n\t-_=é漢。，\u0301😀", "  ", "\r\n", "'s", "don't", "\u3000"]), max_size=400
    )
)
@settings(max_examples=60, deadline=None)
def test_every_cut_is_where_the_encoding_cuts(parts: list[str]) -> None:
    """Whatever stands around it: the same text is cut at each place where it may be, and counts the same."""
    text = "".join(parts)
    for name in ("o200k_base", "cl100k_base"):
        encoding = tokenizers.load(name)
        whole = len(encoding.encode_ordinary(text))
        for found in pieces.BREAK.finditer(text):
            head, tail = text[: found.start()], text[found.start() :]
            assert len(encoding.encode_ordinary(head)) + len(encoding.encode_ordinary(tail)) == whole


@pytest.mark.parametrize(
    "text",
    [
        "a" * 50_000,
        "=" * 50_000,
        " " * 50_000,
        "\n" * 50_000,
        "漢" * 20_000,
        "😀" * 10_000,
        "7" * 50_000,
        "".join(random.Random(7).choices(string.ascii_lowercase, k=50_000)),
    ],
    ids=["letter", "equals", "spaces", "newlines", "cjk", "emoji", "digits", "letters"],
)
def test_a_run_without_breaks_is_off_by_a_token_or_two_a_piece(text: str) -> None:
    encoding = tokenizers.load("o200k_base")
    cuts = -(-len(text) // pieces.PIECE)

    assert 0 <= pieces.count(encoding, text) - len(encoding.encode_ordinary(text)) <= 2 * cuts


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\u3000", " \n"], ids=["space", "newline", "tab", "wide", "both"])
def test_more_white_space_than_the_encoder_bears_is_counted(space: str) -> None:
    assert 0 < pieces.count(tokenizers.load("o200k_base"), space * 1_100_000) <= 1_100_000


def test_lone_surrogates_are_counted() -> None:
    assert pieces.count(tokenizers.load("o200k_base"), "a\ud800b" * 3_000) > 6_000


def test_a_long_run_costs_no_more_than_some_times_prose() -> None:
    encoding = tokenizers.load("o200k_base")

    def seconds(text: str) -> float:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            pieces.count(encoding, text)
            times.append(time.perf_counter() - start)
        return min(times)

    prose = seconds(PROSE * (200_000 // len(PROSE)))

    assert seconds(" " * 200_000) < 20 * prose  # 6 on a quiet machine
    assert seconds("a" * 200_000) < 20 * prose
