"""Whether a port can be listened on."""

import socket

import pytest

from proxy.http.listening import refusal


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_free_port_is_not_refused(host: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    assert refusal(host, port) is None
    assert refusal(host, 0) is None


def test_a_port_that_is_listened_on_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        assert refusal("127.0.0.1", taken.getsockname()[1]) == "Address already in use"


def test_it_leaves_the_port_free() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert refusal("127.0.0.1", port) is None

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


def test_a_port_whose_connections_have_just_ended_is_not_refused() -> None:
    """As after a restart: the old connections linger for a minute."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = listener.accept()
            accepted.close()
            client.recv(1)

    assert refusal("127.0.0.1", port) is None


@pytest.mark.parametrize("host", ["203.0.113.9", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    assert refusal(host, 8080)
