"""What a request costs in its model's own tokens: messages, tools, images; exact for OpenAI's models, else estimated.

Everything here is pure and total: no text, image, schema or model name makes it raise, and no text costs more than a
few times what prose of its size does.
"""

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import tiktoken

from proxy.memories import Held
from proxy.tokens import images, media, models, pieces, schemas, tokenizers
from proxy.tokens.framing import Framing, framing_of
from proxy.tokens.ratios import EXACT, NOTHING, PRIORS, Classes, Ratios, classify
from proxy.tokens.texts import called, said, texts
from proxy.wire import chat

__all__ = ["Cache", "Classes", "Counter", "Measure", "Ratios", "counter", "upper_bound"]


def upper_bound(size_bytes: int) -> int:
    """Tokens that the text in `size_bytes` bytes of a JSON body cannot exceed; media, by link or inline, are apart.

    A byte-level BPE makes at most one token of a byte, and what a template adds around a message or a tool call is
    less than the JSON around it: `{"role":"user","content":""},` alone is 29 bytes for 4 tokens.
    """
    return size_bytes


class Measure(NamedTuple):
    """A message measured, before any ratio: tokens that are certain, and tokens of text by class."""

    fixed: int
    classes: Classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Counts for the models of one family.

    `name` is the encoding's. `estimated`: it is not the model's own. `key` tells apart what else a message's measure
    depends on: two counters with one key measure every message alike.
    """

    name: str
    key: str
    estimated: bool
    encoding: tiktoken.Encoding = field(repr=False, compare=False)
    framing: Framing = field(repr=False)
    vision: images.Vision = field(repr=False)
    ratios: Ratios

    def content(self, text: str) -> int:
        """Tokens of `text` by itself, without framing."""
        tokens = pieces.count(self.encoding, text)
        return tokens if self.ratios == EXACT else self.ratios.scale(classify(text, tokens))

    def message(self, m: chat.Message) -> int:
        """Tokens of a message, framing included, and of what it causes: a call's cost includes its result's heading."""
        return self.total(self.measure(m))

    def measure(self, m: chat.Message) -> Measure:
        """What `total` makes the message's tokens of, whatever the ratios are by then."""
        if self.estimated:
            return Measure(self.fixed(m), self.classes(m))
        if len(m.parts) == 1 and isinstance(part := m.parts[0], chat.Text) and _says_nothing_else(m):
            return Measure(self.framing.message + pieces.count(self.encoding, part.text), NOTHING)
        return Measure(self.fixed(m) + sum(pieces.count(self.encoding, text) for text in texts(m)), NOTHING)

    def total(self, measure: Measure) -> int:
        """Tokens of a message that was measured by a counter with this key."""
        return self.ratios.whole(measure.classes, measure.fixed) if self.estimated else measure.fixed

    def classes(self, m: chat.Message) -> Classes:
        """The encoding's tokens of the message's texts, by class, before any ratio; what `fixed` counts is apart."""
        calls = sum(pieces.count(self.encoding, text) for text in called(m)) if m.calls else 0
        return self._classes(said(m))._replace(calls=calls)

    def _classes(self, given: Iterable[str]) -> Classes:
        found = [classify(text, pieces.count(self.encoding, text)) for text in given]
        return Classes(*map(sum, zip(*found, strict=True))) if found else NOTHING

    def fixed(self, m: chat.Message) -> int:
        """Tokens of a message that no ratio touches: framing, images, audio, files, unknown parts."""
        frame = self.framing
        total = frame.message + self.images(m) + sum(map(media.cost, m.parts))
        if m.role == "function" or m.answers is not None:
            total += frame.result
        elif m.name is not None:
            total += frame.name
        if m.calls:
            total += frame.parallel if len(m.calls) > 1 and frame.parallel else frame.call * len(m.calls)
        if m.shape is chat.Shape.OTHER and not m.parts:
            total += media.json_cost(m.size)
        return total

    def images(self, m: chat.Message) -> int:
        """Tokens of the message's images."""
        return sum(images.cost(part, self.vision) for part in m.parts if isinstance(part, chat.Image))

    def tools(self, settings: chat.Settings) -> int:
        """Tokens of the tool and function schemas, and of a tool choice."""
        given = (settings.tools, settings.functions, settings.tool_choice)
        return self._once("tools", given, self._tools) if settings.tools or settings.functions else 0

    def overhead(self, settings: chat.Settings) -> int:
        """Tokens of a request beside its messages: tools, response format, preamble, the reply's priming."""
        wanted = settings.response_format
        response = self._once("format", wanted, self._response_format) if wanted else 0
        framing = self.framing.preamble + self.framing.reply
        return self.tools(settings) + response + math.ceil(round(self.ratios.factor * framing, 6))

    def with_ratios(self, ratios: Ratios) -> "Counter":
        """This counter with other ratios. An exact one has none, and stays as it is."""
        return replace(self, ratios=ratios) if self.estimated else self

    def _once(self, kind: str, given: Any, measure: Callable[[Any], Measure]) -> int:
        """The tokens of `measure(given)`, which is remembered, as a client sends the same with every request."""
        text = schemas.plain(given).encode("utf-8", "surrogatepass")
        key = (f"{kind} {self.key}", hashlib.blake2b(text, digest_size=16).digest())
        known = _SCHEMAS.get(key)
        if known is None:
            known = measure(given)
            _SCHEMAS.put(key, known)
        return self.ratios.beside(known.classes, known.fixed) if self.estimated else sum(known.classes) + known.fixed

    def _tools(self, given: tuple[tuple[Any, ...], tuple[Any, ...], Any]) -> Measure:
        tools, functions, choice = given
        if self.framing.declared:
            found = [schemas.namespace([*map(schemas.function_of, tools), *functions])]
        else:
            found = [schemas.plain(tool) for tool in (*tools, *functions)]
        name = schemas.function_of(choice)
        name = name.get("name") if isinstance(name, dict) else None
        if not isinstance(name, str):
            return Measure(self.framing.tools + int(choice == "none"), self._classes(found))
        return Measure(self.framing.tools + self.framing.named_choice, self._classes([*found, name]))

    def _response_format(self, given: Any) -> Measure:
        parts = schemas.response_schema(given)
        return Measure(self.framing.response_schema, self._classes(parts)) if parts else Measure(0, NOTHING)


def _says_nothing_else(m: chat.Message) -> bool:
    """Whether a message is its parts and nothing more, as most are."""
    return m.name is None and m.answers is None and not (m.calls or m.extras) and m.role != "function"


_MEASURE_BYTES = 400  # of a measure and its key, in their places


@lru_cache(maxsize=1024)
def counter(model: str | None) -> Counter:
    """The counter for `model`; for one that is unknown or None, an estimate on the high side.

    Raises ConfigError if the data of its encoding cannot be loaded.
    """
    family, tokenizer, vision = models.family(model), models.encoding(model), images.vision(model)
    return Counter(
        name=tokenizer.encoding,
        key=f"{tokenizer.encoding} {family} {vision}",
        estimated=not tokenizer.exact,
        encoding=tokenizers.load(tokenizer.encoding),
        framing=framing_of(family, tokenizer.encoding),
        vision=vision,
        ratios=PRIORS[family],
    )


class Cache:
    """Measures of messages by `(counter.key, digest)`, the least recently used forgotten beyond `max_bytes`.

    At least one is kept. Thread-safe.
    """

    def __init__(self, max_bytes: int = 32 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._size = max(1, max_bytes // _MEASURE_BYTES)
        self._measures: OrderedDict[tuple[str, bytes], Measure] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._measures)

    def held(self) -> Held:
        """How much it holds."""
        return Held(len(self._measures), _MEASURE_BYTES * len(self._measures), self._max_bytes)

    def get(self, key: tuple[str, bytes]) -> Measure | None:
        """What was put under `key`, None if nothing was or it is forgotten."""
        with self._lock:
            known = self._measures.get(key)
            if known is not None:
                self._measures.move_to_end(key)
            return known

    def put(self, key: tuple[str, bytes], measure: Measure) -> None:
        """Remember `measure` under `key`."""
        with self._lock:
            self._measures[key] = measure
            self._measures.move_to_end(key)
            if len(self._measures) > self._size:
                self._measures.popitem(last=False)

    def message(self, counter: Counter, m: chat.Message) -> int:
        """What `counter.message(m)` says; the message is measured once, whatever becomes of the ratios."""
        key = (counter.key, m.digest)
        known = self.get(key)
        if known is None:
            known = counter.measure(m)
            self.put(key, known)
        return counter.total(known)

    def messages(self, counter: Counter, ms: Sequence[chat.Message]) -> list[int]:
        """What `message` says of each of them, at the cost of one look for all that are known."""
        keys = [(counter.key, m.digest) for m in ms]
        measures = self._measures
        with self._lock:
            known = [measures.get(key) for key in keys]
            for key, measure in zip(keys, known, strict=True):
                if measure is not None:
                    measures.move_to_end(key)
        new: dict[tuple[str, bytes], Measure] = {}
        for key, m, measure in zip(keys, ms, known, strict=True):
            if measure is None and key not in new:
                new[key] = counter.measure(m)
        if new:
            self._put_all(new)
        return [
            counter.total(new[key] if measure is None else measure) for key, measure in zip(keys, known, strict=True)
        ]

    def _put_all(self, new: Mapping[tuple[str, bytes], Measure]) -> None:
        with self._lock:
            self._measures |= new
            while len(self._measures) > self._size:
                self._measures.popitem(last=False)


_SCHEMAS = Cache(1_000 * _MEASURE_BYTES)
