"""Which route a request takes: path prefix, model, headers and key ANDed, the first match wins. (pure)"""

import fnmatch
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from proxy.route import Route


def fingerprint(key: str) -> str:
    """What stands for an API key wherever the key itself must not: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def glob(pattern: str) -> re.Pattern[str]:
    """A shell-style pattern (`*`, `?`, `[ab]`) as a regex for the whole of a value, case included."""
    return re.compile(fnmatch.translate(pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """The conditions of one route; what is empty or None asks for nothing.

    `path` is a prefix of whole segments without a trailing slash; `headers` has lower-case names; `key` is a
    fingerprint.
    """

    path: str = ""
    model: re.Pattern[str] | None = None
    headers: Mapping[str, re.Pattern[str]] = field(default_factory=lambda: MappingProxyType({}))
    key: str | None = None

    def match(self, path: str, model: str | None, headers: Mapping[str, str], key_fingerprint: str | None) -> bool:
        """Whether a request meets every condition; a request without a model meets no condition on it."""
        return (self.model is None or (model is not None and self.model.match(model) is not None)) and self._match_rest(
            path, headers, key_fingerprint
        )

    def match_other(
        self, path: str, model: str | None, headers: Mapping[str, str], key_fingerprint: str | None
    ) -> bool:
        """Like `match` for a request that is not chat: where it names no model, none is asked for."""
        return (self.model is None or model is None or self.model.match(model) is not None) and self._match_rest(
            path, headers, key_fingerprint
        )

    def strip(self, path: str) -> str:
        """`path` without this route's prefix: `/support/v1/models` is `/v1/models`."""
        return path[len(self.path) :] or "/" if self._under(path) else path

    def _under(self, path: str) -> bool:
        return path == self.path or path.startswith(f"{self.path}/") or not self.path

    def _match_rest(self, path: str, headers: Mapping[str, str], key_fingerprint: str | None) -> bool:
        return (
            self._under(path)
            and (self.key is None or self.key == key_fingerprint)
            and all(name in headers and pattern.match(headers[name]) for name, pattern in self.headers.items())
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The route of a request, and the request's path without the route's prefix."""

    route: Route
    path: str


@dataclass(frozen=True, slots=True)
class Router:
    """The routes with their conditions, in the order in which they are tried.

    `asks_headers` and `asks_key` say whether any route has a condition on them.
    """

    entries: tuple[tuple[Matcher, Route], ...]
    asks_headers: bool = field(init=False)
    asks_key: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "asks_headers", any(matcher.headers for matcher, _ in self.entries))
        object.__setattr__(self, "asks_key", any(matcher.key is not None for matcher, _ in self.entries))

    @property
    def names(self) -> tuple[str, ...]:
        """The routes' names, for the error that says that none matched."""
        return tuple(route.name for _, route in self.entries)

    @property
    def asks_model(self) -> bool:
        """Whether any route has a condition on the model."""
        return any(matcher.model is not None for matcher, _ in self.entries)

    def find(
        self, path: str, model: str | None, headers: Mapping[str, str], key_fingerprint: str | None
    ) -> Found | None:
        """The route of a chat request, or None. Header names are looked up in lower case."""
        for matcher, route in self.entries:
            if matcher.match(path, model, headers, key_fingerprint):
                return Found(route, matcher.strip(path))
        return None

    def find_other(
        self, path: str, model: str | None, headers: Mapping[str, str], key_fingerprint: str | None
    ) -> Found:
        """The route of a request that is not chat: the first that matches, else the first of all."""
        for matcher, route in self.entries:
            if matcher.match_other(path, model, headers, key_fingerprint):
                return Found(route, matcher.strip(path))
        matcher, route = self.entries[0]
        return Found(route, matcher.strip(path))
