"""Which conversation a request continues: a chain of digests over its messages, since chat requests carry no id. (pure)

digest₀ stands for what separates conversations with the same words (salt, route, tenant, session, variant);
digestᵢ = H(digestᵢ₋₁, canonical message i). So two requests share exactly the digests of the messages they share, in
order, from the first on. Without the salt nobody can tell from a digest which words it stands for.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from hashlib import blake2b

from proxy.http.headers import Headers, first
from proxy.wire.canonical import DIGEST_BYTES, canonical, digest

__all__ = ["DIGEST_BYTES", "Chain", "canonical", "chain", "digest", "root", "tenant"]

Chain = tuple[bytes, ...]
"""The digest of each prefix of a request's messages: as many as there are messages, 16 bytes each."""


def root(salt: bytes, route: str, tenant: bytes = b"", session: str | None = None, variant: str = "") -> bytes:
    """digest₀ of the conversations of one route, tenant and session.

    `session` is what the client sent as `x-trimtab-session`; `variant` sets requests apart that are decided about by
    other rules (mode, policy and budget of shadow and overridden requests).
    """
    sent = b"" if session is None else b"+" + _bytes(session)
    return _hash(salt, b"root", _bytes(route), tenant, sent, _bytes(variant))


def chain(root: bytes, digests: Sequence[bytes], known: Chain = ()) -> Chain:
    """The digest of each prefix of the messages with these canonical digests, of which the first may be `known`."""
    found = list(known)
    last = found[-1] if found else root
    for own in digests[len(found) :]:
        last = blake2b(last + own, digest_size=DIGEST_BYTES).digest()
        found.append(last)
    return tuple(found)


def tenant(headers: Headers, tenant_header: str | None = None) -> bytes:
    """Whose request it is: a fingerprint of the header that the route names, else of the key; b"" where there is none.

    Of a JSON Web Token its issuer and subject count, unverified, since such tokens are renewed every hour: nothing
    but the separation of conversations may rest on them. Any other bearer token, and a malformed JWT, is a static key.
    """
    if tenant_header is not None and (named := first(headers, _bytes(tenant_header.lower()))):
        return _hash(b"", b"header", named)
    authorization = first(headers, b"authorization") or b""
    scheme, _, bearer = authorization.strip().partition(b" ")
    if scheme.lower() != b"bearer" or not (key := bearer.strip()):
        key = authorization or first(headers, b"api-key") or first(headers, b"x-trimtab-key") or b""
    if not key:
        return b""
    owner = _jwt_owner(key)
    return _hash(b"", b"key", key) if owner is None else _hash(b"", b"jwt", *owner)


def _jwt_owner(token: bytes) -> tuple[bytes, bytes] | None:
    """Issuer and subject of a JSON Web Token (RFC 7519), None for anything else."""
    parts = token.split(b".")
    if len(parts) != 3:
        return None
    try:
        header, claims = (json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))) for part in parts[:2])
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not (isinstance(header, dict) and isinstance(claims, dict) and "alg" in header):
        return None
    issuer, subject = claims.get("iss", ""), claims.get("sub")
    if not (isinstance(issuer, str) and isinstance(subject, str) and subject):
        return None
    return _bytes(issuer), _bytes(subject)


def _hash(key: bytes, *fields: bytes) -> bytes:
    """BLAKE2b over length-prefixed fields; a key longer than BLAKE2b takes is hashed first."""
    state = blake2b(key=key if len(key) <= 64 else blake2b(key).digest(), digest_size=DIGEST_BYTES)
    for value in fields:
        state.update(len(value).to_bytes(8, "big"))
        state.update(value)
    return state.digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
