"""Work between turns is replaced, dropped or thrown away freely, never raises, and stops when it is told to."""

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from proxy.conversations.background import Background, Wanted, Work

SOON = 5.0


@pytest.fixture
def make() -> Iterator[Callable[..., Background]]:
    made: list[Background] = []

    def build(**options: int) -> Background:
        made.append(Background(**options))
        return made[-1]

    yield build
    for each in made:
        assert each.close(SOON)


class Busy:
    """Work that holds the thread until it is let go."""

    def __init__(self, queue: Background, conversation: bytes = b"busy", size: int = 0) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.wanted: Wanted = lambda: True
        queue.put(conversation, self, size)
        assert self.started.wait(SOON)

    def __call__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.started.set()
        assert self.go.wait(SOON)


def finish(queue: Background) -> None:
    """Wait until all that was queued before has had its turn."""
    last = threading.Event()
    queue.put(b"last", lambda _: last.set())
    assert last.wait(SOON)


def note(done: list[str], name: str) -> Work:
    return lambda _: done.append(name)


def test_work_is_done_in_order_on_a_thread_of_its_own(make: Callable[..., Background]) -> None:
    queue = make()
    threads: list[int] = []
    done: list[str] = []
    busy = Busy(queue)
    for name in ("a", "b", "c"):
        queue.put(name.encode(), note(done, name))
    queue.put(b"d", lambda _: threads.append(threading.get_ident()))
    busy.go.set()
    finish(queue)

    assert done == ["a", "b", "c"]
    assert threads != [threading.get_ident()]


def test_the_newest_work_of_a_conversation_replaces_what_waits(make: Callable[..., Background]) -> None:
    queue = make()
    done: list[str] = []
    busy = Busy(queue)
    queue.put(b"a", note(done, "old"))
    queue.put(b"a", note(done, "new"))
    busy.go.set()
    finish(queue)

    assert done == ["new"]
    assert queue.counts.outrun == 1


def test_work_that_runs_hears_that_it_is_not_wanted_any_more(make: Callable[..., Background]) -> None:
    queue = make()
    busy = Busy(queue, b"a")
    assert busy.wanted()
    queue.discard(b"other")
    assert busy.wanted()

    queue.discard(b"a")

    assert not busy.wanted()
    busy.go.set()
    finish(queue)
    assert queue.counts.outrun == 1


def test_what_is_discarded_is_not_done(make: Callable[..., Background]) -> None:
    queue = make()
    done: list[str] = []
    busy = Busy(queue)
    queue.put(b"a", note(done, "a"))
    queue.discard(b"a")
    busy.go.set()
    finish(queue)

    assert done == []


def test_a_full_queue_drops_what_has_waited_longest(make: Callable[..., Background]) -> None:
    queue = make(size=2)
    done: list[str] = []
    busy = Busy(queue)
    for name in ("a", "b", "c"):
        queue.put(name.encode(), note(done, name))
    assert (queue.counts.dropped, queue.counts.waiting) == (1, 2)
    busy.go.set()
    while queue.counts.waiting:
        threading.Event().wait(0.001)
    finish(queue)

    assert done == ["b", "c"]


class Panic(BaseException):
    """What a native library may raise: no Exception."""


@pytest.mark.parametrize("error", [ValueError("x"), Panic("x"), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_work_that_raises_stops_nothing(make: Callable[..., Background], error: BaseException) -> None:
    queue = make()

    def fail(_: Wanted) -> None:
        raise error

    queue.put(b"a", fail)
    while queue.counts.waiting:
        threading.Event().wait(0.001)
    finish(queue)


def test_failures_are_counted(make: Callable[..., Background]) -> None:
    queue = make()

    def fail(_: Wanted) -> None:
        raise ValueError("the client's own words")

    queue.put(b"a", fail)
    finish(queue)

    assert queue.counts.failed == 1


def test_closing_throws_away_what_waits_and_stops_what_runs() -> None:
    queue = Background()
    done: list[str] = []
    running = threading.Event()

    def patient(wanted: Wanted) -> None:
        running.set()
        while wanted():
            threading.Event().wait(0.001)
        done.append("stopped")

    queue.put(b"a", patient)
    queue.put(b"b", note(done, "b"))
    assert running.wait(SOON)

    assert queue.close(SOON)
    assert done == ["stopped"]
    assert not queue.put(b"c", note(done, "c"))
    assert queue.close(SOON)


def test_closing_does_not_wait_for_ever() -> None:
    queue = Background()
    busy = Busy(queue)

    assert not queue.close(0.01)

    busy.go.set()
    assert queue.close(SOON)


def test_a_queue_that_was_never_used_closes() -> None:
    assert Background().close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_the_thread_has_the_lowest_priority_and_the_process_its_own(make: Callable[..., Background]) -> None:
    queue = make()
    seen: list[int] = []
    queue.put(b"a", lambda _: seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
    finish(queue)

    assert seen == [19]
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_a_queue_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="size: must be at least 1, got 0"):
        Background(size=0)


def test_all_work_that_there_is_keeps_so_many_bytes_at_the_most(make: Callable[..., Background]) -> None:
    queue = make(max_bytes=1000)
    done: list[str] = []
    busy = Busy(queue, size=100)
    queue.park(b"p", note(done, "p"), 300)
    queue.put(b"a", note(done, "a"), 300)
    queue.put(b"b", note(done, "b"), 300)
    assert (queue.counts.bytes, queue.counts.held) == (1000, 4)
    queue.put(b"c", note(done, "c"), 300)
    assert (queue.counts.bytes, queue.counts.dropped) == (1000, 1), "what is parked makes room first"
    queue.put(b"c", note(done, "c again"), 300)
    queue.put(b"d", note(done, "d"), 500)
    assert (queue.counts.bytes, queue.counts.dropped) == (900, 3), "then what has waited longest"
    queue.put(b"e", note(done, "e"), 1000)
    assert (queue.counts.bytes, queue.counts.held) == (100, 1), "what is too much by itself is not kept"
    queue.put(b"f", note(done, "f"), 10)
    queue.resume(b"p")
    busy.go.set()
    finish(queue)

    assert done == ["f"]
    finish(queue)
    assert queue.counts.bytes == 0
    with pytest.raises(ValueError, match="max_bytes: must be at least 1, got 0"):
        Background(max_bytes=0)


def test_what_is_parked_waits_until_it_is_resumed(make: Callable[..., Background]) -> None:
    queue = make(size=2)
    done: list[str] = []
    for name in ("a", "b", "c"):
        queue.park(name.encode(), note(done, name), 10)
    finish(queue)
    assert (done, queue.counts.held, queue.counts.dropped) == ([], 2, 1)
    for name in ("a", "b"):
        queue.resume(name.encode())
    finish(queue)
    assert done == ["b"]
    queue.discard(b"c")
    queue.resume(b"c")
    finish(queue)

    assert (done, queue.counts.bytes) == (["b"], 0)


def test_work_that_is_over_keeps_nothing_in_memory(make: Callable[..., Background]) -> None:
    class Body:
        """A request."""

    queue, over = make(), threading.Event()
    body = Body()
    weakref.finalize(body, over.set)
    queue.put(b"a", lambda _, body=body: None)  # type: ignore[misc]
    del body

    assert over.wait(SOON)
