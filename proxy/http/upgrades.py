"""Upgrades of the protocol, which are never made: a request that asks for one is answered as the HTTP/1.1 that it is.

RFC 9110, section 7.8, has a server ignore what it does not want. Java's client wishes for h2c with each request that is
not encrypted, and its body follows like any other; but the parser takes what follows such a head for the new protocol.
"""

from proxy.http.headers import Headers


def without(method: bytes, target: bytes, version: str, fields: Headers) -> bytes:
    """The same head, in which `Connection` does not ask for an upgrade any more.

    `Upgrade` itself stays: what was asked for can still be answered, such as a WebSocket with a 501.
    """
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    for name, value in fields:
        if name == b"connection":
            listed = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in listed if token.lower() != b"upgrade")
        lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
