"""What is asked: chat requests of a size, the same again or growing."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, repeat

WORDS = ("the", "tide", "turns", "at", "the", "quay", "and", "a", "crane", "lifts", "what", "its", "manifest", "names")
MODEL = "gpt-4o"
TIGHT = "gpt-4o-tight"
"""The model whose window the large requests are over."""
HYBRID = "gpt-4o-hybrid"
"""The same, on a route with the policy `hybrid`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A row of the table: requests of about `size` bytes.

    With `grows` each adds two messages to the one before; with `fresh` none is like another.
    """

    name: str
    size: int
    model: str = MODEL
    grows: bool = False
    fresh: bool = False

    def bodies(self, first: int = 0) -> Iterator[bytes]:
        """The bodies, one after the other, without an end.

        Those that are `fresh` are numbered from `first`; of those that grow it is the number of their conversation.
        """
        if self.fresh:
            return (chat(self.size, self.model, opening=f"Talk {number}.") for number in count(first))
        if self.grows:
            return growing(self.size, self.model, opening=f"Talk {first}.")
        return repeat(chat(self.size, self.model))


TRIMMED_BY_HYBRID = Load(name="500 KB, growing, over the window, hybrid", size=499_000, model=HYBRID, grows=True)
LOADS = (
    Load(name="2 KB", size=2_000),
    Load(name="50 KB", size=50_000),
    Load(name="500 KB", size=500_000),
    Load(name="500 KB, growing", size=499_000, grows=True),
    Load(name="500 KB, never seen", size=499_000, fresh=True),
    Load(name="500 KB, growing, over the window", size=499_000, model=TIGHT, grows=True),
)


def chat(
    size: int, model: str = MODEL, *, opening: str = "You help the harbour office.", stream: bool = False
) -> bytes:
    """A chat request of about `size` bytes, in messages of about 400."""
    return _body(_messages(size, opening), model, stream=stream)


def growing(size: int, model: str = MODEL, *, opening: str = "You help the harbour office.") -> Iterator[bytes]:
    """A chat request of about `size` bytes, and those that follow on it."""
    messages = _messages(size, opening)
    for number in count():
        yield _body(messages, model, stream=False)
        messages.append({"role": "assistant", "content": f"Noted as {number}. {_words(number)}"})
        messages.append({"role": "user", "content": f"What of berth {number}? {_words(number + 7)}"})


def _messages(size: int, opening: str) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": opening}]
    left, number = size - 200, 0
    while left > 0:
        content = f"{opening} {number}: {_words(number)}"[: size - 100]
        messages.append({"role": "assistant" if number % 2 else "user", "content": content})
        left -= len(content) + 35
        number += 1
    if number % 2:
        messages.append({"role": "assistant", "content": "Noted."})
    messages.append({"role": "user", "content": "And now?"})
    return messages


def _words(number: int) -> str:
    return " ".join(WORDS[(number * 5 + i * 3) % len(WORDS)] for i in range(70))


def _body(messages: list[dict[str, str]], model: str, *, stream: bool) -> bytes:
    return json.dumps({"model": model, "messages": messages, **({"stream": True} if stream else {})}).encode()
