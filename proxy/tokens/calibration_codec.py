"""Calibrations and pasts as bytes for a store: versioned, under 800 bytes, without a word of any message. (pure)

A version byte, then msgpack. What cannot be trusted to the last figure is not used at all: it is learned again in a
few requests.
"""

import math

import msgspec
import numpy as np

from proxy.tokens.calibration import LARGEST, RECENT, SIZE, Calibration, Past, restore
from proxy.tokens.counts import Counts
from proxy.tokens.ratios import Ratios
from proxy.tokens.regression import MOST, Sums

VERSION = 1

_LARGEST_SUM = 1_000 * MOST * MOST  # more than any observations, forgetting as they do, add up to
_LARGEST_RATIO = 10.0


class _Stored(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    prior: tuple[float, float, float, float]
    products: list[float]
    targets: list[float]
    seen: int
    opening: bytes
    following: bytes
    shortfalls: int


class _StoredPast(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    counts: tuple[int, int, int, int, int, int, int, int]
    actual: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)
_past_decoder = msgspec.msgpack.Decoder(_StoredPast)


def encode(calibration: Calibration) -> bytes:
    """The bytes of a calibration."""
    prior = calibration.prior
    stored = _Stored(
        (prior.latin, prior.code, prior.cjk, prior.other),
        list(calibration.sums.products),
        list(calibration.sums.targets),
        calibration.seen,
        calibration.opening,
        calibration.following,
        calibration.shortfalls,
    )
    return bytes((VERSION,)) + _encoder.encode(stored)


def decode(data: bytes) -> Calibration | None:
    """The calibration that these are the bytes of, None if they are of none: another version's, cut, or made up."""
    if data[:1] != bytes((VERSION,)):
        return None
    try:
        stored = _decoder.decode(data[1:])
    except msgspec.MsgspecError:
        return None
    if not _plausible(stored):
        return None
    try:
        return restore(
            Ratios(*stored.prior),
            Sums(tuple(stored.products), tuple(stored.targets)),
            seen=stored.seen,
            opening=stored.opening,
            following=stored.following,
            shortfalls=stored.shortfalls,
        )
    except np.linalg.LinAlgError:
        return None


def encode_past(past: Past) -> bytes:
    """The bytes of a conversation's last request: eight counts, and what the upstream counted."""
    return bytes((VERSION,)) + _encoder.encode(_StoredPast((*past.counts,), past.actual))


def decode_past(data: bytes) -> Past | None:
    """The past that these are the bytes of, None if they are of none."""
    if data[:1] != bytes((VERSION,)):
        return None
    try:
        stored = _past_decoder.decode(data[1:])
    except msgspec.MsgspecError:
        return None
    plausible = all(0 <= each <= LARGEST for each in stored.counts) and 1 <= stored.actual <= LARGEST
    return Past(Counts(*stored.counts), stored.actual) if plausible else None


def _plausible(stored: _Stored) -> bool:
    sums = (*stored.products, *stored.targets)
    return (
        len(stored.products) == SIZE * (SIZE + 1) // 2
        and len(stored.targets) == SIZE
        and all(math.isfinite(each) and abs(each) <= _LARGEST_SUM for each in sums)
        and all(0 < ratio <= _LARGEST_RATIO for ratio in stored.prior)
        and all(stored.products[row * (row + 3) // 2] >= 0 for row in range(SIZE))
        and len(stored.opening) <= RECENT
        and len(stored.following) <= RECENT
        and stored.seen >= 0
        and stored.shortfalls >= 0
    )
