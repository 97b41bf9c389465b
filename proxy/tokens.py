"""What a request costs in its model's own tokens: messages, tools, images; exact for OpenAI's models, else estimated.

Everything here is pure and total: no text, image, schema or model name makes it raise, and no text costs more than a
few times what prose of its size does.
"""

import hashlib
import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import tiktoken

from proxy import chat, images, models, pieces, schemas, tokenizers
from proxy.framing import Framing, framing_of
from proxy.ratios import EXACT, PRIORS, Classes, Ratios, classify

__all__ = ["Cache", "Classes", "Counter", "Ratios", "counter", "upper_bound"]

# Audio is 10 tokens a second (OpenAI's «Audio» guide). A second is at least this many bytes of base64.
_AUDIO_BYTES_PER_TOKEN = {"wav": 4_300, "pcm16": 4_300, "flac": 2_100}
_COMPRESSED_BYTES_PER_TOKEN = 1_100
_AUDIO_FRAMING = 4

# A document is read as its text and as pictures of its pages: a page of 13 kB was billed at 220 tokens.
_FILE_BYTES_PER_TOKEN = 80
_FILE_LEAST = 200
_FILE_BY_ID = 1_500  # nothing is known but that there is one

_MEDIA = re.compile(r"image|video|audio|media|file|document|pdf", re.IGNORECASE)
_OPAQUE_BYTES_PER_TOKEN = 3
_OPAQUE_MEDIA_MOST = 2_000  # so that base64 is not taken for text

_MEMO = 256  # texts of tools and formats whose tokens are remembered


def upper_bound(size_bytes: int) -> int:
    """Tokens that `size_bytes` bytes of JSON cannot exceed, images and framing of many tiny messages apart.

    A byte-level BPE makes at most one token of a byte, and what a template adds around a message and a tool call is
    less than the JSON around it: `{"role":"user","content":""},` alone is 29 bytes for 4 tokens.
    """
    return size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Counts for the models of one family.

    `name` is the encoding's, with the ratios where the text is only estimated by it. `key` also tells apart what else
    a message's tokens depend on: two counters with one key count every message alike. `estimated`: the encoding is
    not the model's own.
    """

    name: str
    key: str
    estimated: bool
    encoding: tiktoken.Encoding = field(repr=False, compare=False)
    framing: Framing = field(repr=False)
    vision: images.Vision = field(repr=False)
    ratios: Ratios = EXACT

    def content(self, text: str) -> int:
        """Tokens of `text` by itself, without framing."""
        tokens = pieces.count(self.encoding, text)
        return tokens if self.ratios == EXACT else self.ratios.scale(classify(text, tokens))

    def message(self, m: chat.Message) -> int:
        """Tokens of a message, framing included, and of what it causes: a call's cost includes its result's heading."""
        if self.ratios == EXACT:
            return self.fixed(m) + sum(pieces.count(self.encoding, text) for text in _texts(m))
        return self.fixed(m) + self.ratios.scale(self.classes(m))

    def classes(self, m: chat.Message) -> Classes:
        """The encoding's tokens of the message's texts, by class, before any ratio; what `fixed` counts is apart."""
        latin = code = cjk = other = 0
        for text in _texts(m):
            part = classify(text, pieces.count(self.encoding, text))
            latin, code, cjk, other = latin + part.latin, code + part.code, cjk + part.cjk, other + part.other
        return Classes(latin, code, cjk, other)

    def fixed(self, m: chat.Message) -> int:
        """Tokens of a message that no ratio touches: framing, images, audio, files, unknown parts."""
        frame = self.framing
        total = frame.message + self.images(m) + sum(_media(part) for part in m.parts)
        if m.name is not None:
            total += frame.name
        if m.answers is not None:
            total += frame.result
        if m.calls:
            total += frame.call * len(m.calls) if len(m.calls) == 1 or not frame.parallel else frame.parallel
        if m.shape is chat.Shape.OTHER and not m.parts:
            total += -(-m.size // _OPAQUE_BYTES_PER_TOKEN)
        return total

    def images(self, m: chat.Message) -> int:
        """Tokens of the message's images."""
        return sum(images.cost(part, self.vision) for part in m.parts if isinstance(part, chat.Image))

    def tools(self, settings: chat.Settings) -> int:
        """Tokens of the tool and function schemas, and of a tool choice."""
        return self._schemas(settings)[0]

    def overhead(self, settings: chat.Settings) -> int:
        """Tokens of a request beside its messages: tools, response format, preamble, the reply's priming."""
        return sum(self._schemas(settings)) + self.framing.preamble + self.framing.reply

    def with_ratios(self, ratios: Ratios) -> "Counter":
        """This counter with other ratios; it has a name and a key of its own."""
        mark = "/".join(f"{ratio:.3g}" for ratio in (ratios.latin, ratios.code, ratios.cjk, ratios.other))
        base, kind = self.encoding.name, self.key.split(" ", 1)[1]
        name = base if ratios == EXACT else f"{base}*{mark}"
        return replace(self, ratios=ratios, name=name, key=f"{name} {kind}")

    def _schemas(self, settings: chat.Settings) -> tuple[int, int]:
        """Tokens of tools and of the response format; remembered, as a client sends the same with every request."""
        parts = (settings.tools, settings.functions, settings.tool_choice, settings.response_format)
        if not any(parts):
            return 0, 0
        text = schemas.plain(parts)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return _remembered(_SchemaKey(self, settings, digest))

    def _tools(self, settings: chat.Settings) -> int:
        declared = [*map(schemas.function_of, settings.tools), *settings.functions]
        if not declared:
            return 0
        if self.framing.declared:
            total = self.content(schemas.namespace(declared))
        else:
            total = sum(self.content(schemas.plain(tool)) for tool in (*settings.tools, *settings.functions))
        return total + self.framing.tools + self._choice(settings.tool_choice)

    def _choice(self, choice: Any) -> int:
        name = schemas.function_of(choice)
        name = name.get("name") if isinstance(name, dict) else None
        if isinstance(name, str):
            return self.content(name) + self.framing.named_choice
        return int(choice == "none")

    def _response_format(self, settings: chat.Settings) -> int:
        texts = schemas.response_schema(settings.response_format)
        return sum(map(self.content, texts)) + self.framing.response_schema if texts else 0


@dataclass(frozen=True, slots=True)
class _SchemaKey:
    """A counter and the digest of what it counts; what is counted goes along, but does not tell keys apart."""

    counter: Counter
    settings: chat.Settings = field(compare=False)
    digest: bytes


@lru_cache(maxsize=_MEMO)
def _remembered(key: _SchemaKey) -> tuple[int, int]:
    return key.counter._tools(key.settings), key.counter._response_format(key.settings)


def _texts(m: chat.Message) -> list[str]:
    """The texts of a message that the model is given, each to be counted by itself."""
    texts = [part.text for part in m.parts if isinstance(part, chat.Text)]
    if m.name is not None:
        texts.append(m.name)
    if m.role == "function" and m.answers is not None:
        texts.append(m.answers)
    texts += m.extras
    if len(m.calls) == 1 or m.legacy_call:
        for call in m.calls:
            texts += (call.name, call.arguments)
    elif m.calls:
        texts.append(_parallel(m.calls))
    if not m.legacy_call:
        texts += [call.name for call in m.calls]  # heads the result, which itself knows only the call's id
    return texts


def _parallel(calls: tuple[chat.Call, ...]) -> str:
    """Several calls as the one call that they are to the model."""
    uses = (f'{{"recipient_name":"functions.{call.name}","parameters":{_compact(call.arguments)}}}' for call in calls)
    return f'{{"tool_uses":[{",".join(uses)}]}}'


def _compact(arguments: str) -> str:
    try:
        return schemas.plain(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _media(part: chat.Part) -> int:
    match part:
        case chat.Audio(size=size, format=kind):
            return _AUDIO_FRAMING + -(-size // _AUDIO_BYTES_PER_TOKEN.get(kind.lower(), _COMPRESSED_BYTES_PER_TOKEN))
        case chat.File(size=0):
            return _FILE_BY_ID
        case chat.File(size=size):
            return max(_FILE_LEAST, -(-size // _FILE_BYTES_PER_TOKEN))
        case chat.Opaque(type=kind, size=size):
            tokens = -(-size // _OPAQUE_BYTES_PER_TOKEN)
            return min(tokens, _OPAQUE_MEDIA_MOST) if _MEDIA.search(kind) else tokens
        case _:
            return 0


@lru_cache(maxsize=1024)
def counter(model: str | None) -> Counter:
    """The counter for `model`; for one that is unknown or None, an estimate on the high side.

    Raises ConfigError if the data of its encoding cannot be loaded.
    """
    family, tokenizer, vision = models.family(model), models.encoding(model), images.vision(model)
    base = Counter(
        name="",
        key=f" {family} {vision}",
        estimated=not tokenizer.exact,
        encoding=tokenizers.load(tokenizer.encoding),
        framing=framing_of(family, tokenizer.encoding),
        vision=vision,
    )
    return base.with_ratios(PRIORS[family])


class Cache:
    """Tokens of messages by `(counter.key, digest)`, the least recently used forgotten beyond `size`. Thread-safe."""

    def __init__(self, size: int = 100_000) -> None:
        self._size = size
        self._tokens: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tokens)

    def get(self, key: tuple[str, bytes]) -> int | None:
        """What was put under `key`, None if nothing was or it is forgotten."""
        with self._lock:
            known = self._tokens.get(key)
            if known is not None:
                self._tokens.move_to_end(key)
            return known

    def put(self, key: tuple[str, bytes], tokens: int) -> None:
        """Remember `tokens` under `key`."""
        with self._lock:
            self._tokens[key] = tokens
            self._tokens.move_to_end(key)
            if len(self._tokens) > self._size:
                self._tokens.popitem(last=False)

    def message(self, counter: Counter, m: chat.Message) -> int:
        """What `counter.message(m)` says, asked once."""
        key = (counter.key, m.digest)
        known = self.get(key)
        if known is None:
            known = counter.message(m)
            self.put(key, known)
        return known
