"""What an image costs: by model, by its size in pixels and by `detail`, as the providers document it.

The size is read from the header in a data URL. Of an http URL, and of a header that cannot be read, nothing is known:
they cost what the largest image would. Nothing is ever fetched.

Sources: OpenAI's «Images and vision» guide (tiles; patches; their base costs and multipliers), Anthropic's «Vision»
page (width x height / 750), Google's «Understand and count tokens» (258 a tile), the image processors that come with
the open models.
"""

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Protocol

from proxy.tokens import models
from proxy.tokens.pixels import Size, size_of
from proxy.wire.chat import Image


class Vision(Protocol):
    """How a model prices an image."""

    def cost(self, size: Size | None, detail: str | None) -> int:
        """Tokens of an image of `size` pixels; None: unknown, so the most that one image can cost."""
        ...


@dataclass(frozen=True, slots=True)
class Tiles:
    """`base` tokens, and `tile` more for each square of 512 pixels once the image was made to fit.

    It is shrunk to fit into 2048 x 2048, then until its shorter side is 768; it is never enlarged.
    """

    base: int
    tile: int

    def cost(self, size: Size | None, detail: str | None) -> int:
        """Base and tiles; the base alone where `detail` is low."""
        if detail == "low":
            return self.base
        if size is None:
            return self.base + 8 * self.tile  # 2048 x 768, the most that is left of any image
        width, height = _fit(size, 2048)
        if min(width, height) > 768:
            shrink = 768 / min(width, height)
            width, height = round(width * shrink), round(height * shrink)
        return self.base + self.tile * math.ceil(width / 512) * math.ceil(height / 512)


@dataclass(frozen=True, slots=True)
class Limit:
    """What an image is shrunk to: its longer side in pixels and its patches of 32 pixels; None: as it is."""

    side: int | None
    patches: int | None


@dataclass(frozen=True, slots=True)
class Patches:
    """`multiplier` tokens for each patch of 32 x 32 pixels that covers the image once it was made to fit.

    `high` and `original` are the limits of these details; `auto` names the detail that stands for auto and none.
    """

    multiplier: float
    high: Limit
    original: Limit
    auto: str = "high"
    low: Limit | None = None  # None: `low` changes nothing, as was measured for the small models

    def cost(self, size: Size | None, detail: str | None) -> int:
        """The patches within the limit that `detail` stands for."""
        limits = {"low": self.low or self.high, "high": self.high, "original": self.original}
        limit = limits.get(detail or self.auto, limits[self.auto])
        patches = _patches(size, limit) if size else limit.patches or _UNLIMITED
        return int(patches * self.multiplier)


@dataclass(frozen=True, slots=True)
class Area:
    """A token for each `pixels` pixels once the image fits into a square of `side`, at most `most` tokens."""

    most: int
    side: int
    pixels: int = 750

    def cost(self, size: Size | None, detail: str | None) -> int:
        """The area once the image was made to fit, whatever `detail` says."""
        if size is None:
            return self.most
        width, height = _fit(size, self.side)
        return min(self.most, math.ceil(width * height / self.pixels))


@dataclass(frozen=True, slots=True)
class Crops:
    """258 tokens for an image of up to 384 pixels a side, or for each of its crops of about two thirds its side."""

    most: int = 258 * 12

    def cost(self, size: Size | None, detail: str | None) -> int:
        """The crops, whatever `detail` says."""
        if size is None:
            return self.most
        if max(size.width, size.height) <= 384:
            return 258
        crop = min(768, max(256, int(min(size.width, size.height) / 1.5)))
        return min(self.most, 258 * math.ceil(size.width / crop) * math.ceil(size.height / crop))


_UNLIMITED = 10_000  # patches, of an unknown image whose model shrinks nothing: what the models before it allow
_SMALL = Limit(2048, 1536)
_LARGE = Limit(2048, 2500)
_FULL = Limit(6000, 10_000)
_LOW = Limit(512, 256)
_AS_IT_IS = Limit(None, None)

_FALLBACK = Tiles(85, 170)
_BY_NAME: tuple[tuple[str, Vision], ...] = (
    ("gpt-4o-mini*", Tiles(2833, 5667)),
    ("gpt-4.1-mini*", Patches(1.62, _SMALL, _SMALL)),
    ("gpt-4.1-nano*", Patches(2.46, _SMALL, _SMALL)),
    ("gpt-5*-mini*", Patches(1.62, _SMALL, _SMALL)),
    ("gpt-5*-nano*", Patches(2.46, _SMALL, _SMALL)),
    ("o4-mini*", Patches(1.72, _SMALL, _SMALL)),
    ("codex-mini*", Patches(1.72, _SMALL, _SMALL)),
    # The guide names no multiplier for these; 1.2 is what users measured.
    ("gpt-5.[23]*", Patches(1.2, _SMALL, _SMALL)),
    ("gpt-5.4*", Patches(1.2, _LARGE, _FULL, low=_LOW)),
    ("gpt-5.5*", Patches(1.2, _LARGE, _FULL, auto="original", low=_LOW)),
    ("gpt-5.6*", Patches(1.2, _LARGE, _AS_IT_IS, auto="original", low=_LOW)),
    ("gpt-6*", Patches(1.2, _LARGE, _AS_IT_IS, auto="original", low=_LOW)),
    ("gpt-5*", Tiles(70, 140)),
    ("o[13]", Tiles(75, 150)),
    ("o[13]-*", Tiles(75, 150)),
    ("computer-use-preview*", Tiles(65, 129)),
    ("claude-opus-4?[78]*", Area(4784, 2576)),
    ("claude-opus-5*", Area(4784, 2576)),
    ("claude-sonnet-5*", Area(4784, 2576)),
    ("claude-haiku-5*", Area(4784, 2576)),
    ("claude-fable-5*", Area(4784, 2576)),
    ("claude-mythos-5*", Area(4784, 2576)),
    ("claude*", Area(1600, 1568)),
    ("gemini*", Crops()),
    ("gemma*", Crops(258)),
    ("pixtral*", Area(4_160, 1024, 256)),
    ("*mistral*", Area(3_100, 1540, 700)),
    ("llama-4*", Area(2_500, 1344, 300)),
    ("qwen*", Area(16_384, 3_584, 784)),
)


@lru_cache(maxsize=1024)
def vision(model: str | None) -> Vision:
    """How `model` prices images; as gpt-4o does where it is not listed."""
    name = models.bare(model or "")
    return next((kind for glob, kind in _BY_NAME if fnmatchcase(name, glob)), _FALLBACK)


def cost(image: Image, kind: Vision) -> int:
    """Tokens of `image` for a model that prices as `kind` does. Never raises."""
    return kind.cost(size_of(image.url), image.detail)


def _fit(size: Size, side: int) -> Size:
    """`size` shrunk to fit into a square of `side` pixels."""
    longest = max(size.width, size.height)
    if longest <= side:
        return size
    return Size(max(1, round(size.width * side / longest)), max(1, round(size.height * side / longest)))


def _patches(size: Size, limit: Limit) -> int:
    """Patches that cover `size` within `limit`; the second shrinking is the guide's, so that whole patches fit."""
    width, height = size if limit.side is None else _fit(size, limit.side)
    count = math.ceil(width / 32) * math.ceil(height / 32)
    if limit.patches is None or count <= limit.patches:
        return count
    shrink = math.sqrt(32**2 * limit.patches / (width * height))
    across, down = width * shrink / 32, height * shrink / 32
    if across >= 1 and down >= 1:
        shrink *= min(math.floor(across) / across, math.floor(down) / down)
    count = math.ceil(int(width * shrink) / 32) * math.ceil(int(height * shrink) / 32)
    return max(1, min(limit.patches, count))
