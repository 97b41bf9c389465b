import gzip
import zlib
from functools import partial
from itertools import pairwise

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.http import codings

PACK = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": partial(brotli.compress, quality=1),
    "zstd": zstandard.compress,
}


@settings(max_examples=60, deadline=None)
@given(
    body=st.binary(max_size=4000),
    cuts=st.lists(st.integers(0, 5000), max_size=8),
    coding=st.sampled_from(["gzip", "deflate", "br", "zstd", "br, gzip", "gzip, zstd"]),
)
def test_any_split_decodes_the_same(body, cuts, coding) -> None:
    packed = body
    for name in codings.names(coding):
        packed = PACK[name](packed)
    decoder = codings.decoder(coding)
    assert decoder is not None
    edges = [0, *sorted(min(cut, len(packed)) for cut in cuts), len(packed)]
    pieces = [b"".join(decoder.feed(packed[a:b])) for a, b in pairwise(edges)]
    assert b"".join(pieces) == body
    assert decoder.complete


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "zstd, gzip"])
def test_pieces_are_made_only_when_asked_for_and_are_small(coding) -> None:
    bomb = bytes(32 << 20)
    for name in codings.names(coding):
        bomb = PACK[name](bomb)
    decoder = codings.decoder(coding)
    assert decoder is not None
    sizes = [len(piece) for piece, _ in zip(decoder.feed(bomb), range(4), strict=False)]
    assert max(sizes) <= 5 << 20
    assert not decoder.complete


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("", []),
        ("identity", []),
        (" GZip , identity,br", ["gzip", "br"]),
        ("x-gzip", ["gzip"]),
        ("aws-chunked", ["aws-chunked"]),
    ],
)
def test_names_of_codings(field, expected) -> None:
    assert codings.names(field) == expected


def test_a_zstd_window_beyond_what_http_allows_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(bytes(100)) + packer.flush()
    decoder = codings.decoder("zstd")
    assert decoder is not None
    with pytest.raises(codings.CorruptError):
        list(decoder.feed(packed))
