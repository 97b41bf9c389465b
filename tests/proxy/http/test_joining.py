"""Heads leave with what follows at once, and by themselves where nothing does."""

import asyncio

from proxy.http.joining import Joining

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str) -> str:
        return name


def joining() -> tuple[Joining, Wire]:
    wire = Wire()
    return Joining(wire, asyncio.get_running_loop()), wire  # type: ignore[arg-type]


async def test_a_head_leaves_with_the_first_of_its_body() -> None:
    transport, wire = joining()
    for data in (HEAD, b"a", b"b", HEAD, b"c"):
        transport.write(data)
    await asyncio.sleep(0)
    assert wire.written == [HEAD + b"a", b"b", HEAD + b"c"]


async def test_a_head_waits_for_no_body() -> None:
    transport, wire = joining()
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert wire.written == [HEAD]
    transport.write(b"a")
    assert wire.written == [HEAD, b"a"]


async def test_a_large_body_is_not_copied() -> None:
    transport, wire = joining()
    body = b"x" * 100_000
    transport.write(HEAD)
    transport.write(body)
    assert wire.written == [HEAD, body]
    assert wire.written[1] is body


async def test_what_is_held_back_leaves_before_the_connection_closes() -> None:
    transport, wire = joining()
    transport.write(HEAD)
    transport.close()
    await asyncio.sleep(0)
    assert wire.written == [HEAD]
    assert wire.closed


async def test_nothing_is_held_back_on_the_way_to_the_body() -> None:
    transport, wire = joining()
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert len(wire.written) == 1
    assert transport.get_extra_info("peername") == "peername"


async def test_a_connection_that_is_lost_gets_nothing_more() -> None:
    transport, wire = joining()
    transport.write(HEAD)
    wire.closed = True
    await asyncio.sleep(0)
    assert wire.written == []
