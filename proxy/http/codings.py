"""Content codings undone piece by piece: gzip, deflate (zlib or raw), br and zstd, also stacked.

Nothing is inflated ahead of its reader: a piece is made when it is asked for, and pieces are of `PIECE` bytes at most
(zstd: of 4 MB). So whoever counts the pieces and stops in time is safe from decompression bombs. What makes no pieces
is bounded here: what lies between two codings of a stack, streams without content in a row, and the number of codings.
"""

import zlib
from collections.abc import Iterator
from typing import Protocol

import brotli  # type: ignore[import-untyped]
import zstandard

PIECE = 1 << 16
# One zstd block of four bytes may hold 128 KB, and its decoder has no output limit: small bites bound the piece.
_ZSTD_BITE = 1 << 7
# zlib copies what it has not come to each time that it returns: large bodies are given to it by and by.
_ZLIB_BITE = PIECE
_MEMBERS = 1 << 16  # in a row; who compresses in parallel makes one of each 64 KB or more
_CODINGS = 8
# RFC 9659: decoders of the content coding need no more than 8 MB of window.
_ZSTD_WINDOW = 1 << 23


class CorruptError(ValueError):
    """Bytes that are not what their coding says."""


class TooLargeError(ValueError):
    """What lies between two codings is larger than anything that could come out of it may be."""


class Decoder(Protocol):
    """Undoes one coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of what `data` adds; the iterator must be used up before the next call. Raises CorruptError."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the data so far is a whole, ended stream."""
        ...


class _Zlib:
    """gzip (several members in a row too) and deflate, which is zlib by RFC 9110 and often raw in practice."""

    def __init__(self, coding: str) -> None:
        self._gzip = coding == "gzip"
        self._state = zlib.decompressobj(wbits=31) if self._gzip else None
        self._head = b""
        self._members = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZLIB_BITE):
            yield from self._bite(data[start : start + _ZLIB_BITE])

    def _bite(self, data: bytes) -> Iterator[bytes]:
        if self._state is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._state = zlib.decompressobj(wbits=15 if wrapped else -15)
        while data:
            if self._state.eof:
                if not self._gzip or not data.strip(b"\0"):
                    return  # padding after the end is no harm
                self._members = _one_more(self._members)
                self._state = zlib.decompressobj(wbits=31)
            try:
                piece = self._state.decompress(data, PIECE)
            except zlib.error as error:
                raise CorruptError(str(error)) from error
            data = self._state.unconsumed_tail or self._state.unused_data
            if piece:
                yield piece
        while not self._state.eof:
            # The input is used up, but zlib may hold output back that did not fit into the last piece.
            try:
                piece = self._state.decompress(b"", PIECE)
            except zlib.error as error:
                raise CorruptError(str(error)) from error
            if not piece:
                return
            yield piece

    @property
    def complete(self) -> bool:
        return self._state is not None and self._state.eof


class _Brotli:
    def __init__(self) -> None:
        self._state = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._state.process(data, output_buffer_limit=PIECE)
            while piece or not self._state.can_accept_more_data():
                if piece:
                    yield piece
                if self._state.is_finished():
                    return
                piece = self._state.process(b"", output_buffer_limit=PIECE)
        except brotli.error as error:
            raise CorruptError(str(error)) from error

    @property
    def complete(self) -> bool:
        return bool(self._state.is_finished())


class _Zstd:
    def __init__(self) -> None:
        self._state = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._frames = 1

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for start in range(0, len(data), _ZSTD_BITE):
                bite = data[start : start + _ZSTD_BITE]
                while bite:
                    if self._state.eof:
                        self._frames = _one_more(self._frames)
                        self._state = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
                    piece = self._state.decompress(bite)
                    bite = self._state.unused_data if self._state.eof else b""
                    if piece:
                        yield piece
        except zstandard.ZstdError as error:
            raise CorruptError(str(error)) from error

    @property
    def complete(self) -> bool:
        return bool(self._state.eof)


class _Stack:
    """Codings applied one after the other, undone from the last."""

    def __init__(self, decoders: list[Decoder], limit: int | None) -> None:
        self._decoders = decoders
        self._limit = limit
        self._between = [0] * len(decoders)

    def feed(self, data: bytes) -> Iterator[bytes]:
        return self._through(data, len(self._decoders) - 1)

    def _through(self, data: bytes, place: int) -> Iterator[bytes]:
        for piece in self._decoders[place].feed(data):
            if place:
                self._between[place] += len(piece)
                if self._limit is not None and self._between[place] > self._limit:
                    raise TooLargeError
                yield from self._through(piece, place - 1)
            else:
                yield piece

    @property
    def complete(self) -> bool:
        return all(decoder.complete for decoder in self._decoders)


def names(content_encoding: str) -> list[str]:
    """The codings of a Content-Encoding field in the order they were applied, `identity` left out."""
    listed = (name.strip().lower() for name in content_encoding.split(","))
    return [name.removeprefix("x-") for name in listed if name and name != "identity"]


def decoder(content_encoding: str, limit: int | None = None) -> Decoder | None:
    """What undoes the codings of a Content-Encoding field; None if one of them is not known, or they are too many.

    What lies between two codings may have `limit` bytes: it raises TooLargeError beyond.
    """
    decoders: list[Decoder] = []
    listed = names(content_encoding)
    if len(listed) > _CODINGS:
        return None
    for name in listed:
        match name:
            case "gzip" | "deflate":
                decoders.append(_Zlib(name))
            case "br":
                decoders.append(_Brotli())
            case "zstd":
                decoders.append(_Zstd())
            case _:
                return None
    return decoders[0] if len(decoders) == 1 else _Stack(decoders, limit)


def _one_more(members: int) -> int:
    if members == _MEMBERS:
        raise CorruptError(f"more than {_MEMBERS:,} streams in a row")
    return members + 1
