"""The size of an image in pixels, from the first bytes of a data URL: PNG, JPEG, GIF and WebP."""

import binascii
from typing import NamedTuple

_FIRST = 4 * 1024  # characters of base64, enough for every format but a JPEG with much metadata in front
_MOST = 512 * 1024


class Size(NamedTuple):
    """Width and height in pixels."""

    width: int
    height: int


def size_of(url: str) -> Size | None:
    """The size of the image in the data URL `url`; None for another URL and for a header that cannot be read.

    Decodes at most the first half megabyte of base64, and only a JPEG's metadata makes it decode more than 4 kB.
    """
    if url[:5].lower() != "data:":
        return None
    start = url.find(",", 0, 1024) + 1
    if not start or ";base64" not in url[:start].lower():
        return None
    size = _read(_decoded(url[start : start + _FIRST]))
    if size is None and len(url) - start > _FIRST:
        size = _read(_decoded(url[start : start + _MOST]))
    return size if size and size.width > 0 and size.height > 0 else None


def _decoded(text: str) -> bytes:
    whole = text.encode("ascii", "ignore").translate(None, b" \t\r\n")
    try:
        return binascii.a2b_base64(whole[: len(whole) // 4 * 4])
    except binascii.Error:
        return b""


def _read(data: bytes) -> Size | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _big(data[16:24], 4)
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _little(data[6:10], 2)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    return None


def _big(pair: bytes, width: int) -> Size | None:
    if len(pair) < 2 * width:
        return None
    return Size(int.from_bytes(pair[:width], "big"), int.from_bytes(pair[width:], "big"))


def _little(pair: bytes, width: int) -> Size | None:
    if len(pair) < 2 * width:
        return None
    return Size(int.from_bytes(pair[:width], "little"), int.from_bytes(pair[width:], "little"))


def _webp(data: bytes) -> Size | None:
    """The three kinds of first chunk: lossy (RFC 6386, 9.1), lossless (14 bits each, less one), extended."""
    kind, body = data[12:16], data[20:30]
    if len(body) < 10:
        return None
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        lossy = _little(body[6:10], 2)
        return lossy and Size(lossy.width & 0x3FFF, lossy.height & 0x3FFF)
    if kind == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return Size((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8X":
        canvas = _little(body[4:10], 3)
        return canvas and Size(canvas.width + 1, canvas.height + 1)
    return None


def _jpeg(data: bytes) -> Size | None:
    """Walks the segments to the start of frame (ITU T.81, B.2.2), whose height comes first."""
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # no length follows
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = _big(data[at + 5 : at + 9], 2)
            return frame and Size(frame.height, frame.width)
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return None
