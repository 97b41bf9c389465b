import base64
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.tokens.pixels import Size, size_of


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\x00\x00\x00" + bytes(64)
    )


def jpeg(width: int, height: int, before: bytes = b"", frame: int = 0xC0) -> bytes:
    start = b"\xff" + bytes([frame]) + struct.pack(">HBHHB", 17, 8, height, width, 3)
    return b"\xff\xd8" + before + start + bytes(64)


def segment(marker: int, size: int) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", size + 2) + bytes(size)


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 4 + 8 + len(body)) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def lossless(width: int, height: int) -> bytes:
    return b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(16)


def extended(width: int, height: int) -> bytes:
    return bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little") + bytes(16)


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(16),
        b"GIF87a" + struct.pack("<HH", 640, 480),
        jpeg(640, 480),
        jpeg(640, 480, frame=0xC2),
        jpeg(640, 480, before=segment(0xE0, 14) + segment(0xE1, 60_000) + segment(0xE2, 60_000) + segment(0xDB, 65)),
        jpeg(640, 480, before=segment(0xC4, 30) + b"\xff\xff\xff"),
        webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 640 | 1 << 14, 480) + bytes(16)),
        webp(b"VP8L", lossless(640, 480)),
        webp(b"VP8X", extended(640, 480)),
    ],
    ids=["png", "gif", "old gif", "jpeg", "progressive", "metadata", "fill bytes", "webp", "lossless", "extended"],
)
def test_the_size_is_read_from_the_header(data: bytes) -> None:
    assert size_of(url(data)) == Size(640, 480)
    assert size_of(url(data, "image/whatever;name=a")) == Size(640, 480)


def test_line_breaks_in_the_base64_do_no_harm() -> None:
    text = base64.encodebytes(jpeg(640, 480, before=segment(0xE1, 3_000))).decode()

    assert size_of("data:image/jpeg;base64," + text) == Size(640, 480)


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/a.png",
        "",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png,rawdata",
        "data:image/png;base64,!!!!",
        url(png(640, 480)[:20]),
        url(png(0, 480)),
        url(b"GIF89a\x01"),
        url(jpeg(640, 480)[:6]),
        url(b"\xff\xd8" + segment(0xE1, 60_000)),
        url(b"\xff\xd8\x00\x00" + bytes(30)),
        url(webp(b"VP8 ", bytes(30))),
        url(webp(b"VP8L", bytes(30))),
        url(webp(b"ALPH", bytes(30))),
        url(b"BM" + bytes(60)),
        "data:" + "x" * 5_000 + ";base64," + base64.b64encode(png(640, 480)).decode(),
    ],
)
def test_what_cannot_be_read_has_no_size(address: str) -> None:
    assert size_of(address) is None


def test_only_the_beginning_is_decoded() -> None:
    """Twenty million characters behind the header cost nothing: they are not even looked at."""
    beginning = url(png(640, 480))

    assert size_of(beginning + "\u00e9" * 20_000_000) == Size(640, 480)


@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"GIF89a", b"RIFF....WEBPVP8X", b""]), st.binary(max_size=200)
)
@settings(max_examples=100, deadline=None)
def test_no_header_makes_it_raise(start: bytes, rest: bytes) -> None:
    size = size_of(url(start + rest))

    assert size is None or (size.width > 0 and size.height > 0)
