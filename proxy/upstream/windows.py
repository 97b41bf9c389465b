"""Context windows as they are known now: the route's own word, the upstream's, else the table by model name."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from proxy.errors import UpstreamError
from proxy.http.headers import Headers
from proxy.route import Route
from proxy.tokens import models
from proxy.upstream import Reply, Upstream
from proxy.wire import rawjson

KEPT = 1000  # (upstream, model) pairs remembered
FRESH_S = 3600.0  # how long an upstream's word holds
SILENT_S = 600.0  # how long an upstream that said nothing is not asked again
REPLY_BYTES = 4 * 1024 * 1024  # a longer list of models is not read
SILENT_HOSTS = ("api.openai.com", "openai.azure.com")  # their lists of models say nothing of windows
SMALLEST, LARGEST = 256, 100_000_000  # tokens; outside of this a figure is taken for a mistake

# What servers call it: vLLM; OpenRouter, Together, DeepInfra; Groq; Mistral; LM Studio; Gemini; llama.cpp's meta.
_NAMES = (
    *("max_model_len", "context_length", "context_window", "max_context_length", "loaded_context_length"),
    *("inputTokenLimit", "n_ctx", "max_input_tokens"),
)

_log = structlog.get_logger("trimtab")


@dataclass(frozen=True, slots=True)
class _Word:
    window: int | None
    until: float


class Windows:
    """Gives the window of a route's model in tokens, None where nobody knows it.

    `learn` asks an upstream for its own word, at most once an hour for each model, with the client's own
    credentials; it never raises and never waits longer than `patience_s`.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, patience_s: float = 1.0) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._words: OrderedDict[tuple[str, str], _Word] = OrderedDict()
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def learned(self) -> int:
        """How many models' windows upstreams have told."""
        return sum(word.window is not None for word in self._words.values())

    def __call__(self, route: Route, model: str | None) -> int | None:
        """The window as far as it is known now."""
        if route.window is not None:
            return route.window
        if model is None:
            return None
        word = self._words.get((route.upstream, model))
        if word is not None and word.window is not None and self._clock() < word.until:
            return word.window
        return models.window(model)

    async def learn(self, route: Route, model: str | None, upstream: Upstream, headers: Headers) -> None:
        """Ask the upstream about a model it was not asked about lately; waits only where nothing else is known."""
        if route.window is not None or model is None or upstream.host.endswith(SILENT_HOSTS):
            return
        key = (route.upstream, model)
        word = self._words.get(key)
        if word is not None and self._clock() < word.until:
            return
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key, upstream, headers))
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        if self(route, model) is None:
            await asyncio.wait({task}, timeout=self._patience_s)

    async def _ask(self, key: tuple[str, str], upstream: Upstream, headers: Headers) -> None:
        asking = [(name, value) for name, value in headers if name in (b"authorization", b"api-key")]
        asking.append((b"accept", b"application/json"))
        found = None
        try:
            async with asyncio.timeout(10 * self._patience_s):
                found = of_model(await _get(upstream, b"/v1/models", asking), key[1])
                if found is None:
                    found = of_props(await _get(upstream, b"/props", asking, behind_base=False))
        except (UpstreamError, TimeoutError):
            pass
        self._words[key] = _Word(found, self._clock() + (SILENT_S if found is None else FRESH_S))
        self._words.move_to_end(key)
        while len(self._words) > KEPT:
            self._words.popitem(last=False)
        if found is not None:
            _log.info("window_learned", upstream=key[0], model=key[1], window=found)

    async def aclose(self) -> None:
        """Stop asking."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)


async def _get(upstream: Upstream, target: bytes, headers: Headers, *, behind_base: bool = True) -> Any:
    """A JSON value, None for anything else."""
    reply: Reply = await upstream.send("GET", target, headers, behind_base=behind_base)
    try:
        if reply.status != 200:
            return None
        parts: list[bytes] = []
        size = 0
        async for chunk in reply.chunks():
            size += len(chunk)
            if size > REPLY_BYTES:
                return None
            parts.append(chunk)
        return rawjson.read(b"".join(parts))
    except rawjson.RawJsonError:
        return None
    finally:
        await reply.aclose()


def of_model(listing: Any, model: str) -> int | None:
    """The window that a list of models gives for `model`; a list of one is taken to be about the only model there."""
    entries = listing.get("data", listing.get("models")) if isinstance(listing, dict) else listing
    if not isinstance(entries, list):
        return None
    entries = [entry for entry in entries if isinstance(entry, dict)]
    named = [e for e in entries if model in (e.get("id"), e.get("name"), e.get("model"))]
    for entry in named or (entries if len(entries) == 1 else []):
        for place in (entry, entry.get("meta"), entry.get("top_provider")):
            if isinstance(place, dict) and (window := _first(place.get(name) for name in _NAMES)) is not None:
                return window
    return None


def of_props(props: Any) -> int | None:
    """The window that llama.cpp's `/props` gives: that of one slot, which is what a request can have."""
    if not isinstance(props, dict):
        return None
    settings = props.get("default_generation_settings")
    return _first([settings.get("n_ctx")] if isinstance(settings, dict) else [])


def _first(values: Iterable[Any]) -> int | None:
    return next((v for v in values if type(v) is int and SMALLEST <= v <= LARGEST), None)
