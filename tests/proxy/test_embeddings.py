import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from structlog.testing import capture_logs

from proxy.embeddings import Embedder, EmbedderMissing, Embeddings, key
from proxy.embeddings.batches import BATCH_TEXTS

LONG = 5.0  # seconds that nothing here needs unless it is broken


class Letters:
    """Counts letters: texts of the same letters get the same vector. `gate` holds the thread up until it is set."""

    name = "letters"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.calls: list[list[str]] = []
        self.threads: set[int] = set()
        self.closed = 0

    def reads(self, text: str) -> bool:
        return "日" not in text

    def embed(self, texts: Sequence[str]) -> list[np.ndarray]:
        self.calls.append(list(texts))
        self.threads.add(threading.get_ident())
        self.started.set()
        assert self.gate.wait(LONG)
        if self.error is not None:
            raise self.error
        made = []
        for text in texts:
            pieces = np.array([[piece.count(letter) + 0.1 for letter in "abcdef"] for piece in text.split("|")])
            made.append(pieces / np.linalg.norm(pieces, axis=1, keepdims=True))
        return made

    def close(self) -> None:
        self.closed += 1

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]


@contextmanager
def running(
    embedder: Embedder | None, *, queue: int = 4096, cache_bytes: int = 2**20, clock: Callable[[], float] | None = None
) -> Iterator[Embeddings]:
    embeddings = Embeddings(embedder, queue=queue, cache_bytes=cache_bytes, clock=clock or time.monotonic)
    try:
        yield embeddings
    finally:
        if isinstance(embedder, Letters):
            embedder.gate.set()
        assert embeddings.close(LONG)


def texts(*named: str) -> dict[bytes, str]:
    return {key(text): text for text in named}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_vectors_come_by_key_one_row_for_each_piece() -> None:
    with running(Letters()) as embeddings:
        vectors = embeddings.vectors(texts("abc", "a|b|c"), LONG)

    assert {each: found.shape for each, found in vectors.items()} == {key("abc"): (1, 6), key("a|b|c"): (3, 6)}
    assert all(found.dtype == np.float16 for found in vectors.values())


def test_nothing_is_embedded_twice() -> None:
    embedder = Letters()
    with running(embedder) as embeddings:
        embeddings.vectors(texts("a", "b"), LONG)
        again = embeddings.vectors(texts("a", "b", "c"), LONG)
        embeddings.prepare(texts("a", "b", "c"))

    assert len(again) == 3
    assert sorted(embedder.texts) == ["a", "b", "c"]


def test_the_work_is_done_on_one_thread_of_its_own() -> None:
    embedder = Letters()
    with running(embedder) as embeddings:
        embeddings.vectors(texts("a"), LONG)
        asyncio.run(embeddings.gather(texts("b"), LONG))

    assert len(embedder.threads) == 1
    assert threading.get_ident() not in embedder.threads
    assert embedder.closed == 1


async def test_the_loop_goes_on_while_vectors_are_gathered() -> None:
    embedder = Letters()
    embedder.gate.clear()
    with running(embedder) as embeddings:
        gathering = asyncio.create_task(embeddings.gather(texts("a"), LONG))
        await asyncio.sleep(0)
        assert not gathering.done()
        embedder.gate.set()

        assert set(await gathering) == {key("a")}


@pytest.mark.parametrize("blocking", [True, False], ids=["vectors", "gather"])
def test_what_is_late_is_left_out_and_made_all_the_same(*, blocking: bool) -> None:
    embedder = Letters()
    with running(embedder) as embeddings:
        embeddings.vectors(texts("known"), LONG)
        embedder.gate.clear()
        wanted = texts("known", "late")

        found = embeddings.vectors(wanted, 0.01) if blocking else asyncio.run(embeddings.gather(wanted, 0.01))

        assert set(found) == {key("known")}
        embedder.gate.set()
        until(lambda: len(embeddings.known(wanted)) == 2)


def test_without_time_nothing_is_waited_for() -> None:
    embedder = Letters()
    embedder.gate.clear()
    with running(embedder) as embeddings:
        assert embeddings.vectors(texts("a"), 0) == {}
        embedder.gate.set()
        until(lambda: len(embeddings.known(texts("a"))) == 1)


def test_what_somebody_waits_for_comes_before_what_is_prepared_and_the_newest_first() -> None:
    embedder = Letters()
    embedder.gate.clear()
    with running(embedder) as embeddings:
        embeddings.prepare(texts("first"))
        assert embedder.started.wait(LONG)
        embeddings.prepare(texts(*(f"old {i}" for i in range(BATCH_TEXTS))))
        embeddings.prepare(texts("new"))
        asked = threading.Thread(target=embeddings.vectors, args=(texts("urgent"), LONG))
        asked.start()
        until(lambda: bool(embeddings._urgent))
        embedder.gate.set()
        asked.join(LONG)
        until(lambda: len(embedder.texts) == BATCH_TEXTS + 3)

    assert embedder.texts[:4] == ["first", "urgent", "new", f"old {BATCH_TEXTS - 1}"]


def test_the_queue_is_bounded_and_the_oldest_make_room() -> None:
    embedder = Letters()
    embedder.gate.clear()
    with running(embedder, queue=3) as embeddings:
        embeddings.prepare(texts("busy"))
        assert embedder.started.wait(LONG)
        embeddings.prepare(texts(*"abcdef"))
        embedder.gate.set()
        until(lambda: len(embedder.texts) == 4)

    assert sorted(embedder.texts) == ["busy", "d", "e", "f"]


def test_texts_that_wait_are_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.embeddings.QUEUE_BYTES", 50_000)
    embedder = Letters()
    embedder.gate.clear()
    with running(embedder) as embeddings:
        embeddings.prepare(texts("busy"))
        assert embedder.started.wait(LONG)
        embeddings.prepare(texts(*(letter * 10_000 for letter in "abcdefgh")))
        assert 30_000 < embeddings.memories["texts"]().bytes <= 50_000
        assert embeddings.stats.dropped == 4
        embedder.gate.set()
        until(lambda: len(embedder.texts) == 5)

    assert sorted(text[0] for text in embedder.texts) == ["b", "e", "f", "g", "h"]
    assert embeddings.memories["texts"]().bytes == 0


def test_the_cache_is_bounded_in_bytes() -> None:
    with running(Letters(), cache_bytes=20_000) as embeddings:
        wanted = texts(*(f"text {i}" for i in range(200)))
        embeddings.vectors(wanted, LONG)

        assert 0 < len(embeddings.known(wanted)) < 60
        assert key("text 0") in embeddings.known(wanted)


def test_a_failing_embedder_costs_vectors_and_is_left_alone_for_a_while() -> None:
    now = [0.0]
    embedder = Letters(RuntimeError("secret text"))
    with running(embedder, clock=lambda: now[0]) as embeddings, capture_logs() as logs:
        assert embeddings.vectors(texts("a", "b"), LONG) == {}
        assert not embeddings.available
        assert embeddings.vectors(texts("c"), LONG) == {}
        embeddings.prepare(texts("d"))
        embedder.error = None
        now[0] = 10.0
        assert embeddings.available

        assert set(embeddings.vectors(texts("a"), LONG)) == {key("a")}

    assert embedder.texts == ["b", "a"]
    assert [log["event"] for log in logs] == ["fault"]
    assert "secret" not in str(logs)


def test_pauses_double_up_to_a_bound() -> None:
    now = [0.0]
    embedder = Letters(RuntimeError())
    pauses = []
    with running(embedder, clock=lambda: now[0]) as embeddings, capture_logs():
        for i in range(12):
            embeddings.vectors(texts(f"text {i}"), LONG)
            pauses.append(embeddings._resume - now[0])
            now[0] = embeddings._resume

    assert pauses[:3] == [2, 4, 8]
    assert pauses[-1] == 300


def test_an_absent_embedder_is_asked_once_and_said_once() -> None:
    embedder = Letters(EmbedderMissing("not installed: install it"))
    with running(embedder) as embeddings, capture_logs() as logs:
        for name in "abc":
            assert embeddings.vectors(texts(name), LONG) == {}

        assert not embeddings.available

    assert len(embedder.calls) == 1
    assert [(log["event"], log["reason"]) for log in logs] == [("embeddings are off", "not installed: install it")]
    assert embedder.closed == 1


def test_without_an_embedder_there_are_no_vectors() -> None:
    with running(None) as embeddings:
        embeddings.prepare(texts("a"))

        assert embeddings.vectors(texts("a"), LONG) == {}
        assert not embeddings.available


def test_texts_in_a_script_that_the_model_does_not_know_have_no_vectors() -> None:
    embedder = Letters()
    with running(embedder) as embeddings:
        assert set(embeddings.vectors(texts("a", "日本"), LONG)) == {key("a")}
        embeddings.prepare(texts("日"))
        embeddings.vectors(texts("b"), LONG)

    assert embedder.texts == ["a", "b"]


def test_closing_releases_who_waits() -> None:
    embedder = Letters()
    embedder.gate.clear()
    embeddings = Embeddings(embedder)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(embeddings.vectors(texts("a", "b"), LONG)))
    waiting.start()
    assert embedder.started.wait(LONG)

    assert not embeddings.close(0)
    waiting.join(LONG)
    embedder.gate.set()

    assert found == [{}]
    assert embeddings.close(LONG)


def test_many_threads_share_one_embedder() -> None:
    embedder = Letters()
    wanted = texts(*(f"text {i}" for i in range(50)))
    found: list[int] = []
    with running(embedder) as embeddings:
        threads = [
            threading.Thread(target=lambda: found.append(len(embeddings.vectors(wanted, LONG)))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)

    assert found == [50] * 6
    assert sorted(embedder.texts) == sorted(wanted.values())


def test_a_queue_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="queue: must be at least 1, got 0"):
        Embeddings(None, queue=0)


def test_keys_tell_texts_apart_and_take_any() -> None:
    assert key("a") != key("b")
    assert len(key("\ud800")) == 16


def test_the_text_that_others_are_compared_with_comes_alone_and_first() -> None:
    embedder = Letters()
    with running(embedder) as embeddings:
        embeddings.vectors(texts("old", "older", "prompt"), LONG)

    assert embedder.calls[0] == ["prompt"]
    assert sorted(embedder.texts) == ["old", "older", "prompt"]


def test_nobody_waits_for_what_would_be_late_and_it_is_made_afterwards() -> None:
    embedder = Letters()
    with running(embedder) as embeddings:
        wanted = texts("a" * 10**6, "b")
        started = time.monotonic()

        assert set(embeddings.vectors(wanted, LONG)) == {key("b")}
        assert time.monotonic() - started < LONG / 2
        until(lambda: len(embeddings.known(wanted)) == 2)


def test_who_goes_on_without_what_is_late_has_the_processor_for_a_while() -> None:
    now = [0.0]
    embedder = Letters()
    with running(embedder, clock=lambda: now[0]) as embeddings:
        embeddings.vectors(texts("a" * 10**6), LONG)
        time.sleep(0.02)
        assert embedder.texts == []
        now[0] = 0.1
        embeddings.prepare(texts("b"))

        until(lambda: len(embedder.texts) == 2)
