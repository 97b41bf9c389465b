"""Texts that wait for vectors, in the order in which they came, and the bytes that they take. (pure)"""

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping

_AROUND = 250  # bytes around a text: its key, and its place


class Texts(MutableMapping[bytes, str]):
    """Texts by key. One that is put again is the newest. Not for use from several threads."""

    def __init__(self) -> None:
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._texts)

    def __reversed__(self) -> Iterator[bytes]:
        return reversed(self._texts)

    def __getitem__(self, key: bytes) -> str:
        return self._texts[key]

    def __setitem__(self, key: bytes, text: str) -> None:
        self.pop(key, None)
        self._texts[key] = text
        self.bytes += _size(text)

    def __delitem__(self, key: bytes) -> None:
        self.bytes -= _size(self._texts.pop(key))

    def oldest(self) -> bytes:
        """The key of the text that has waited longest. Raises StopIteration where there is none."""
        return next(iter(self._texts))


def _size(text: str) -> int:
    return _AROUND + len(text) * (1 if text.isascii() else 4)
