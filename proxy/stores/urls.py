"""The address of a store, checked and split; what goes into messages has its credentials masked. (pure)"""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from proxy.errors import ConfigError

WANTED = (
    "memory://, sqlite:///relative/file.db, sqlite:////absolute/file.db, redis://host:6379/0, "
    "rediss://host:6379/0 or redis+cluster://host:6379"
)
_ENCODED = "/ ? # @ [ ] in a user or password must be percent-encoded, and a port be a number"

_TLS_OPTIONS = {
    "ssl_ca_certs": r".+",
    "ssl_certfile": r".+",
    "ssl_keyfile": r".+",
    "ssl_cert_reqs": r"required|optional|none",
    "ssl_check_hostname": r"true|false",
}


class Backend(StrEnum):
    """What keeps the state."""

    MEMORY = "memory"
    SQLITE = "sqlite"
    REDIS = "redis"
    CLUSTER = "cluster"


_SCHEMES = {
    "memory": Backend.MEMORY,
    "sqlite": Backend.SQLITE,
    "redis": Backend.REDIS,
    "rediss": Backend.REDIS,
    "redis+cluster": Backend.CLUSTER,
    "rediss+cluster": Backend.CLUSTER,
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is: `target` is a file's path or a client's URL with its credentials; `name` is fit to be shown."""

    backend: Backend
    target: str
    name: str


def parse(url: str) -> Address:
    """The address that `url` names.

    Raises ConfigError, which names the URL with its credentials masked and what would do.
    """
    name = masked(url)
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ConfigError(f"state: must be without spaces and control characters, got {name!r}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        if "@" in url:
            raise ConfigError(f"state: {_ENCODED}, in {name!r}") from None
        raise ConfigError(f"state: {name!r} cannot be read; must be {WANTED}") from None
    backend = _SCHEMES.get(parts.scheme)
    if backend is None or not re.match(r"[a-z+]+://", url, re.IGNORECASE):
        raise ConfigError(f"state: must be {WANTED}, got {name!r}")
    if backend is Backend.MEMORY:
        return _memory(parts, name)
    if backend is Backend.SQLITE:
        return _sqlite(parts, name)
    return _redis(parts, port, backend, url, name)


def masked(url: str) -> str:
    """The URL with user, password and options replaced; whatever stands before the last @ may be part of a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "***" if "@" in url else url
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    head, question, _ = rest.partition("?")
    return f"{scheme}://{head}{'?***' if question else ''}"


def _memory(parts: SplitResult, name: str) -> Address:
    if parts.netloc or parts.path or parts.query or parts.fragment:
        raise ConfigError(f"state: must be memory:// with nothing after it, got {name!r}")
    return Address(Backend.MEMORY, "", name)


def _sqlite(parts: SplitResult, name: str) -> Address:
    if parts.netloc:
        raise ConfigError(f"state: a file's path begins after three slashes, as in sqlite:///state.db, got {name!r}")
    if parts.query or parts.fragment:
        raise ConfigError(f"state: must be without ? and # (in a file's name: %3F and %23), got {name!r}")
    path = unquote(parts.path[1:])
    if path in ("", "/") or path.endswith("/"):
        raise ConfigError(f"state: must name a file, as sqlite:///state.db does, got {name!r}")
    if path == ":memory:":
        raise ConfigError(f"state: must be memory:// to keep nothing on disk, got {name!r}")
    if "\x00" in path:
        raise ConfigError(f"state: must be without control characters, got {name!r}")
    return Address(Backend.SQLITE, path, f"sqlite://{parts.path}")  # nothing in it is a credential


def _redis(parts: SplitResult, port: int | None, backend: Backend, url: str, name: str) -> Address:
    if "@" in parts.path + parts.query + parts.fragment or parts.netloc.count("@") > 1:
        raise ConfigError(f"state: {_ENCODED}, in {name!r}")
    if not parts.hostname or port == 0 or parts.fragment:
        raise ConfigError(f"state: must name a host and port, as redis://localhost:6379/0 does, got {name!r}")
    tls = parts.scheme.startswith("rediss")
    database = parts.path.strip("/")
    if backend is Backend.CLUSTER and database not in ("", "0"):
        raise ConfigError(f"state: a cluster has only database 0, got {name!r}")
    if not re.fullmatch(r"\d{0,5}", database, re.ASCII):
        raise ConfigError(f"state: the database after the host must be a number such as /0, got {name!r}")
    for option, value in parse_qsl(parts.query, keep_blank_values=True):
        form = _TLS_OPTIONS.get(option) if tls else None
        if form is None:
            known = ", ".join(_TLS_OPTIONS) if tls else "none; TLS options go with rediss://"
            raise ConfigError(f"state: unknown option {option!r} in {name!r}; options are {known}")
        if not re.fullmatch(form, value):
            raise ConfigError(f"state: option {option} must be {form.replace('.+', 'a path')}, got {value!r}")
    target = ("rediss" if tls else "redis") + url[len(parts.scheme) :]
    return Address(backend, target, name)
