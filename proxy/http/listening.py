"""Whether a port can be listened on, asked before anything is loaded for it."""

import socket


def refusal(host: str, port: int) -> str | None:
    """Why nobody can listen there now, in a few words of the system's; None if somebody can. 0 is any free port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return error.strerror
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what has just been closed is free
                probe.bind(address)
        except OSError as error:
            return error.strerror
    return None
