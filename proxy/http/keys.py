"""The proxy's own keys: who may ask it for anything at all, and for which routes.

A client shows its key as it would to a provider (`Authorization: Bearer`, `api-key`, `x-api-key`), as `x-trimtab-key`
beside the provider's own, or as the password of `Authorization: Basic`, which is what browsers ask for. Keys are kept
as digests, and compared in constant time.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from proxy.errors import ClientError, ConfigError
from proxy.http.headers import Headers, first

OWN = b"x-trimtab-key"
SCOPE = "trimtab.key"  # where an ASGI scope holds the key that a request was let in with
SHORTEST = 16  # characters; a shorter key can be guessed
_PROVIDERS = (b"authorization", b"api-key", b"x-api-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where keys are found, in the variable `env` or the lines of `file`, and what they are good for.

    `routes` are the names of the routes that they open, None for all; `admin` opens the proxy's own pages.
    """

    name: str
    env: str | None = None
    file: str | None = None
    routes: tuple[str, ...] | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A known key, of which only the digest is kept."""

    name: str
    digest: bytes
    routes: frozenset[str] | None = None
    admin: bool = False

    def opens(self, route: str) -> bool:
        """Whether requests with this key may take a route."""
        return self.routes is None or route in self.routes


@dataclass(frozen=True, slots=True)
class Shown:
    """The key that a request came with, and the header fields of the request with it in its own field alone."""

    key: Key
    headers: Headers


class Keyring:
    """The keys that are accepted; an empty one asks for none."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self._keys = tuple(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, secret: bytes) -> Key | None:
        """The key that `secret` is. Takes as long for one as for another."""
        digest = _digest(secret)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def show(self, headers: Headers) -> Shown:
        """The key among a request's header fields.

        It is moved to `x-trimtab-key`, which goes to no upstream: whatever else is shown there is the provider's.

        Raises:
            ClientError: 401 invalid_api_key, where there is none, or none that is known.
        """
        for name in (OWN, *_PROVIDERS):
            secret = _secret(name, first(headers, name))
            if secret and (key := self.find(secret)) is not None:
                kept = [(other, value) for other, value in headers if other not in (name, OWN)]
                return Shown(key, [*kept, (OWN, secret)])
        raise ClientError(
            401,
            "invalid_api_key",
            "This proxy needs a key of its own, and the request shows none that it knows. Send it as Authorization: "
            "Bearer, or as x-trimtab-key where Authorization carries the provider's.",
        )


def permit(scope: Mapping[str, Any], route: str) -> None:
    """Let a request take a route if its key, where it needed one, opens it.

    Raises:
        ClientError: 403 route_not_allowed.
    """
    key: Key | None = scope.get(SCOPE)
    if key is not None and not key.opens(route):
        raise ClientError(403, "route_not_allowed", f"The key {key.name!r} is not for route {route!r}")


def opened(sources: Iterable[Source], environ: Mapping[str, str]) -> Keyring:
    """The keys that are found where the sources say.

    Raises:
        ConfigError: a variable that is not set, a file that cannot be read or is empty, a key that is too short or
            stands in two places.
    """
    keys: dict[bytes, Key] = {}
    problems: list[str] = []
    for number, source in enumerate(sources):
        where = f"keys[{number}].{'env' if source.file is None else 'file'}"
        try:
            secrets = _secrets(source, environ)
        except (OSError, ValueError) as error:
            problems.append(f"{where}: {error.strerror if isinstance(error, OSError) else error}")
            continue
        routes = None if source.routes is None else frozenset(source.routes)
        for secret in secrets:
            if len(secret) < SHORTEST:
                problems.append(f"{where}: a key must have at least {SHORTEST} characters, got {len(secret)}")
            elif (other := keys.get(_digest(secret))) is not None:
                problems.append(f"{where}: has a key that {other.name!r} has too; give each name keys of its own")
            else:
                key = Key(name=source.name, digest=_digest(secret), routes=routes, admin=source.admin)
                keys[key.digest] = key
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return Keyring(tuple(keys.values()))


def _secrets(source: Source, environ: Mapping[str, str]) -> list[bytes]:
    if source.file is None:
        secret = environ.get(source.env or "", "").strip()
        if not secret:
            raise ValueError("must name an environment variable that is set, and this one is not")
        return [secret.encode("utf-8", "surrogateescape")]
    lines = (line.strip() for line in Path(source.file).read_bytes().splitlines())
    if not (secrets := [line for line in lines if line and not line.startswith(b"#")]):
        raise ValueError("must be a file with one key a line, and holds none")
    return secrets


def _secret(name: bytes, value: bytes | None) -> bytes | None:
    if value is None or name != b"authorization":
        return value
    scheme, _, secret = value.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return secret.strip()
    try:
        return base64.b64decode(secret, validate=True).partition(b":")[2] if scheme.lower() == b"basic" else None
    except binascii.Error:
        return None


def _digest(secret: bytes) -> bytes:
    return sha256(secret).digest()
