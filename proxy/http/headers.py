"""HTTP header fields as raw pairs of bytes: what a proxy passes on, and what ends with each connection.

Names are lower-case, as ASGI has them; order and duplicates are kept. Fields of one connection (RFC 9110,
section 7.6.1, and whatever `Connection` lists) are dropped in both directions.
"""

import re
from collections.abc import Iterable, Sequence

Headers = Sequence[tuple[bytes, bytes]]

OWN_PREFIX = b"x-trimtab-"

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# A sender must not list fields meant for every recipient (RFC 9110, section 7.6.1); one that does would
# have the body misread behind us.
_NEVER_LISTED = frozenset({b"content-length", b"content-type", b"content-encoding", b"authorization", b"api-key"})
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Digests of a body that has changed.
_BODY_DIGESTS = frozenset({b"content-md5", b"digest", b"content-digest", b"repr-digest"})


def first(headers: Headers, name: bytes) -> bytes | None:
    """The value of the first field called `name` (lower-case), None if there is none."""
    for key, value in headers:
        if key == name:
            return value
    return None


def tokens(headers: Headers, name: bytes) -> list[bytes]:
    """The comma-separated values of all fields called `name`, lower-case, in order."""
    joined = b",".join(value for key, value in headers if key == name)
    return [token for part in joined.lower().split(b",") if (token := part.strip())]


def text(headers: Headers, name: bytes) -> str:
    """All values of the fields called `name` as one text, joined by commas; empty if there is none."""
    return ", ".join(value.decode("latin-1") for key, value in headers if key == name)


def for_upstream(headers: Headers, *, length: int | None, changed: bool = False) -> list[tuple[bytes, bytes]]:
    """The fields of a client's request that its upstream gets; `Host` is left to the connection.

    `length` is the size of the body in bytes where it is known; None leaves a streamed body's framing as the
    client declared it. With `changed`, what described the client's own body (its coding and its digests) goes.
    """
    dropped = _connection_fields(headers)
    stale_length = length is not None or any(name == b"transfer-encoding" for name, _ in headers)
    kept: list[tuple[bytes, bytes]] = []
    place: int | None = None
    for name, value in headers:
        if name in dropped or name == b"host" or name == b"expect" or name.startswith(OWN_PREFIX):
            continue
        if changed and (name == b"content-encoding" or name in _BODY_DIGESTS):
            continue
        if name == b"content-length" and stale_length:
            place = len(kept) if place is None else place
            continue
        kept.append((name, value))
    if length is not None and (length or place is not None):
        kept.insert(len(kept) if place is None else place, (b"content-length", str(length).encode()))
    return kept


def for_client(headers: Headers, *, status: int = 200, extra: Headers = ()) -> list[tuple[bytes, bytes]]:
    """The fields of an upstream's response that the client gets, and `extra` ones, which replace their namesakes.

    A response is framed by `Content-Length` or by chunks, never by both (RFC 9112, section 6.3); 204 and 304
    have no body, so nothing frames it. Control characters become spaces (RFC 9110, section 5.5): servers refuse
    to send them.
    """
    dropped = _connection_fields(headers)
    own = {name for name, _ in extra}
    unframed = status in (204, 304) or any(name == b"transfer-encoding" for name, _ in headers)
    kept = [
        (name, value)
        for name, value in headers
        if not (name in dropped or name in own or (unframed and name == b"content-length"))
    ]
    if _CONTROL.search(b"".join(value for _, value in kept)):
        kept = [(name, _CONTROL.sub(b" ", value)) for name, value in kept]
    kept.extend(extra)
    return kept


def has_body(headers: Headers) -> bool:
    """Whether a request with these fields is followed by a body (RFC 9112, section 6.3)."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0") for name, value in headers
    )


def asks_websocket(headers: Headers) -> bool:
    """Whether a request asks to become a WebSocket; other upgrades may be ignored (RFC 9110, section 7.8)."""
    return b"websocket" in tokens(headers, b"upgrade")


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The same fields with lower-case names."""
    return [(name.lower(), value) for name, value in headers]


def _connection_fields(headers: Headers) -> frozenset[bytes]:
    """The names of the fields that end with this connection."""
    listed = tokens(headers, b"connection")
    return _HOP_BY_HOP.union(listed).difference(_NEVER_LISTED) if listed else _HOP_BY_HOP
