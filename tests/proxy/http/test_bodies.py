import asyncio
import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import ClientError, ClientGone
from proxy.http import bodies, codings
from proxy.http.bodies import Decoded, Undecodable, Upload

BODY = b'{"messages": []}' * 50


def messages(*parts: bytes, gone: bool = False):
    queue = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if not gone:
        queue[-1]["more_body"] = False
    queue.append({"type": "http.disconnect"})

    async def receive():
        await asyncio.sleep(0)
        return queue.pop(0)

    return receive


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACK = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


async def test_a_body_is_read_to_its_end() -> None:
    assert await bodies.read(messages(b"ab", b"", b"c"), 3) == b"abc"


@pytest.mark.parametrize("declared", [[], [(b"content-length", b"4")]])
async def test_a_body_over_the_limit_is_refused(declared) -> None:
    with pytest.raises(ClientError, match="at most 3 bytes") as caught:
        await bodies.read(messages(b"ab", b"cd"), 3, declared)
    assert (caught.value.status, caught.value.code) == (413, "body_too_large")


async def test_a_declared_length_is_enough_to_refuse() -> None:
    async def receive():
        raise AssertionError("read")

    with pytest.raises(ClientError, match="got 4"):
        await bodies.read(receive, 3, [(b"content-length", b"4")])


async def test_a_client_that_leaves_while_its_body_is_read() -> None:
    with pytest.raises(ClientGone):
        await bodies.read(messages(b"ab", gone=True), 10)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [(name, pack(BODY)) for name, pack in PACK.items()]
    + [
        pytest.param("deflate", raw_deflate(BODY), id="raw deflate"),
        pytest.param("gzip, br", brotli.compress(gzip.compress(BODY)), id="stacked"),
        pytest.param("GZIP,identity", gzip.compress(BODY), id="names in any case"),
        pytest.param("gzip", gzip.compress(BODY[:99]) + gzip.compress(BODY[99:]), id="two members"),
        pytest.param("zstd", zstandard.compress(BODY[:99]) + zstandard.compress(BODY[99:]), id="two frames"),
        pytest.param("gzip", gzip.compress(BODY) + bytes(8), id="padded"),
    ],
)
async def test_codings_are_undone(coding, packed) -> None:
    assert bodies.decode(packed, coding, len(BODY)) == Decoded(BODY, coded=True)
    assert await bodies.decode_aside(packed, coding, len(BODY)) == Decoded(BODY, coded=True)


@pytest.mark.parametrize("coding", ["", "identity", " , "])
def test_a_body_without_coding_is_what_it_is(coding) -> None:
    assert bodies.decode(BODY, coding, 1 << 20) == Decoded(BODY, coded=False)


@pytest.mark.parametrize(
    ("coding", "packed", "reason"),
    [
        ("compress", BODY, "unknown"),
        ("gzip, secret", BODY, "unknown"),
        *((name, BODY, "is not") for name in ("gzip", "zstd")),
        ("br", b"\xff" * 50, "is not"),
        ("deflate", b"\xff\xff" * 50, "is not"),
        *((name, pack(BODY)[:-9], "ends in the middle") for name, pack in PACK.items()),
        ("gzip", b"", "ends in the middle"),
        ("gzip", gzip.compress(BODY) + b"trailing junk", "is not"),
    ],
)
def test_what_cannot_be_decoded_is_named(coding, packed, reason) -> None:
    result = bodies.decode(packed, coding, 1 << 20)
    assert isinstance(result, Undecodable)
    assert reason in result.reason


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, br", "zstd, gzip, zstd"])
def test_bombs_are_not_inflated(coding) -> None:
    bomb = bytes(64 << 20)
    for name in codings.names(coding):
        bomb = brotli.compress(bomb, quality=1) if name == "br" else PACK[name](bomb)
    limit = 1 << 20
    with pytest.raises(ClientError, match="at most"):
        bodies.decode(bomb, coding, limit)
    decoder = codings.decoder(coding)
    assert decoder is not None
    assert max(len(piece) for piece, _ in zip(decoder.feed(bomb), range(20), strict=False)) <= 5 << 20


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_streams_without_content_in_a_row_come_to_an_end(coding) -> None:
    """They count as nothing, so no limit of bytes would end them."""
    result = bodies.decode(PACK[coding](b"") * 200_000 + PACK[coding](BODY), coding, 1 << 20)

    assert isinstance(result, Undecodable)
    assert "streams in a row" in result.reason


@pytest.mark.parametrize("coding", ["gzip, gzip", "gzip, zstd", "gzip, br, zstd"])
def test_what_lies_between_two_codings_is_bounded_too(coding) -> None:
    """Here much that comes to nothing: an empty stream and its padding."""
    first, *rest = codings.names(coding)
    between = PACK[first](b"") + bytes(8 << 20)
    for name in rest:
        between = brotli.compress(between, quality=1) if name == "br" else PACK[name](between)

    with pytest.raises(ClientError, match="at most"):
        bodies.decode(between, coding, 1 << 20)


def test_no_more_codings_are_undone_than_anybody_would_stack() -> None:
    packed = BODY
    for _ in range(1500):
        packed = gzip.compress(packed, compresslevel=0)

    result = bodies.decode(packed, ", ".join(["gzip"] * 1500), 1 << 20)

    assert isinstance(result, Undecodable)
    assert len(result.reason) < 300


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), coding=st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_any_bytes_decode_or_say_why_not(data, coding) -> None:
    assert isinstance(bodies.decode(data, coding, 1 << 20), Decoded | Undecodable)


async def test_an_upload_is_read_ahead_only_so_far() -> None:
    taken = 0

    async def receive():
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x", "more_body": True}

    async with Upload(receive, ahead=3) as upload:
        parts = aiter(upload)
        assert await anext(parts) == b"x"
        for _ in range(20):
            await asyncio.sleep(0)
        assert taken <= 6


async def test_an_upload_says_that_its_client_has_gone() -> None:
    async with Upload(messages(b"ab", gone=True)) as upload:
        assert await upload.receive() == {"type": "http.disconnect"}
    assert not upload.stalled


async def test_an_upload_cannot_be_sent_twice() -> None:
    async with Upload(messages(b"ab")) as upload:
        assert [part async for part in upload] == [b"ab"]
        with pytest.raises(RuntimeError, match="once"):
            [part async for part in upload]
