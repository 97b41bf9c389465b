"""What every embedder does to a text before a model sees it."""

from collections.abc import Sequence

_BEGINNING = 2000  # characters


def plain(text: str) -> str:
    """The text as valid Unicode: half of a surrogate pair, which JSON can hold and no tokenizer takes, becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def ends(pieces: Sequence[str], most: int) -> list[str]:
    """The first and the last of the pieces of a text, `most` in all (2 or more); all where there are not more."""
    if len(pieces) <= most:
        return list(pieces)
    return [*pieces[: most // 2], *pieces[most // 2 - most :]]


def mostly_ascii(text: str) -> bool:
    """Whether at least half of the letters at the beginning of a text are unaccented Latin ones; true without any."""
    if text.isascii():
        return True
    letters = [character.isascii() for character in text[:_BEGINNING] if character.isalpha()]
    return 2 * sum(letters) >= len(letters)
