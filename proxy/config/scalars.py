"""The kinds of single settings: what a name, an address or a path may be, and what is said where it is not. (pure)"""

import re
from collections.abc import Collection
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from policies import registry
from proxy.config.problems import shown
from proxy.errors import ConfigError
from proxy.stores import urls

_C = TypeVar("_C", bound=Collection[object])
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+\Z")  # a token of RFC 9110, section 5.6.2, in lower case
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"})


def _name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(f"must be 1 to 64 letters, digits, dots, dashes or underscores, got {shown(value)}")
    return value


def _variable(value: str) -> str:
    # Somebody will put the key itself here: the message must not repeat it, and a key must not pass for a name.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", value) or value.startswith(("sk_", "pk_")):
        raise ValueError("must be the name of an environment variable that holds the key, such as OPENAI_API_KEY")
    return value


def _base_url(value: str) -> str:
    wanted = "must be an http or https address such as https://api.openai.com/v1"
    try:
        url = urlsplit(value)
        host, _ = url.hostname, url.port
    except ValueError:
        raise ValueError(f"{wanted}; this one cannot be read") from None
    if url.username is not None or url.password is not None:
        raise ValueError(f"{wanted}, without a user or password; name the key's variable in api_key_env")
    if url.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f]", value):
        raise ValueError(f"{wanted}, got {shown(value)}")
    if "?" in value or "#" in value:
        raise ValueError(f"{wanted}, without a query or fragment")
    return value.rstrip("/")


def _state(value: str) -> str:
    try:
        urls.parse(value)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("state: ")) from None
    return value


def _audit_place(value: str) -> str:
    wanted = "must be memory://, sqlite:///relative/file.db or sqlite:////absolute/file.db"
    try:
        address = urls.parse(value)
    except ConfigError:
        raise ValueError(f"{wanted}, got {shown(urls.masked(value))}") from None
    if address.backend not in (urls.Backend.MEMORY, urls.Backend.SQLITE):
        raise ValueError(f"{wanted}, got {shown(address.name)}")
    return value


def _shares(value: dict[str, float]) -> dict[str, float]:
    for name, share in value.items():
        if name not in registry.names():
            raise ValueError(f"no policy is called {shown(name)}; known: {', '.join(registry.names())}")
        if not 0 < share < 1:
            raise ValueError(f"{name}: must be a share between 0 and 1, got {share}")
    if len(value) < 2 or abs(sum(value.values()) - 1) > 0.001:
        got = ", ".join(f"{name} {share}" for name, share in value.items()) or "none"
        raise ValueError(f"must be shares of two policies or more that sum to 1, got {got}")
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"must be a regular expression, got {shown(value)}: {error}") from None
    return value


def _path(value: str) -> str:
    if not value.startswith("/") or re.search(r"[?#\s]", value):
        raise ValueError(
            f"must be a path that starts with a slash, without a query, such as /support, got {shown(value)}"
        )
    return value.rstrip("/") or "/"


def _headers(value: dict[str, str]) -> dict[str, str]:
    lowered = {name.lower(): glob for name, glob in value.items()}
    for name in lowered:
        if name in _CREDENTIALS:
            raise ValueError(f"{name!r} carries a credential; match the key's fingerprint with match.key instead")
        if not _HEADER.match(name):
            raise ValueError(f"{name!r} is not a header name; use letters, digits and dashes")
    if len(lowered) < len(value):
        raise ValueError("two keys are the same header: names ignore case")
    return lowered


def _header(value: str) -> str:
    if not _HEADER.match(name := value.lower()):
        raise ValueError(f"must be a header's name, letters, digits and dashes, got {value!r}")
    return name


def _fingerprint(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16}", value):
        raise ValueError(
            "must be a key's fingerprint, not the key: the first 16 hex digits of its SHA-256 "
            '(printf %s "$KEY" | sha256sum | cut -c1-16)'
        )
    return value


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _unlisted(value: tuple[str, ...]) -> str | list[str]:
    return value[0] if len(value) == 1 else list(value)


def some(value: _C) -> _C:
    """`value`, which must hold something."""
    # pydantic's own min_length also speaks up where the items are there and wrong.
    if not value:
        raise ValueError("must hold at least one, and is empty")
    return value


Name = Annotated[str, AfterValidator(_name)]
HeaderName = Annotated[str, AfterValidator(_header)]
Variable = Annotated[str, AfterValidator(_variable)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
State = Annotated[str, AfterValidator(_state)]
AuditPlace = Annotated[str, AfterValidator(_audit_place)]
Regex = Annotated[str, AfterValidator(_regex)]
PathPrefix = Annotated[str, AfterValidator(_path)]
Text = Annotated[str, Field(min_length=1)]
HeaderGlobs = Annotated[dict[str, Text], AfterValidator(_headers)]
Fingerprint = Annotated[str, AfterValidator(_fingerprint)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_listed), AfterValidator(some), PlainSerializer(_unlisted)]
Share = Annotated[float, Field(ge=0, le=1)]
Shares = Annotated[dict[str, float], AfterValidator(_shares)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


def unshared(state: str, workers: int, *, setting: str) -> str | None:
    """What is wrong with a state that so many `workers` are to share, as `setting` has it; None where they can."""
    if workers == 1 or not state.lower().startswith("memory:"):
        return None
    return f"must be sqlite:///file or redis://host:port/0, since {setting} is {workers} and memory:// serves one"
