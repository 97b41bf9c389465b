from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.supply import State, Supply
from bench.vectors import DiskVectors
from proxy.embeddings import Vectors, key


class Counting:
    """An embedder that remembers what it was asked for."""

    name = "counting"

    def __init__(self) -> None:
        self.made: list[str] = []

    def reads(self, text: str) -> bool:
        return True

    def embed(self, texts: Sequence[str]) -> list[Any]:
        self.made += texts
        return [np.ones((1, 4), dtype=np.float32) for _ in texts]

    def close(self) -> None:
        """Nothing."""


def wanted(*texts: str) -> dict[bytes, str]:
    return {key(text): text for text in texts}


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def disk(embedder: Counting, tmp_path: Path) -> DiskVectors:
    found = DiskVectors(embedder, tmp_path / "vectors.sqlite")
    found.make(["before", "prompt"])
    embedder.made.clear()
    return found


def test_vectors_that_are_waited_for_come_from_disk(embedder: Counting, disk: DiskVectors) -> None:
    supply = Supply(disk, State.WAITED)
    supply.renew()

    assert len(supply.vectors(wanted("before", "prompt"), supply.wait_s)) == 2
    assert embedder.made == []


def test_only_what_came_before_a_prompt_is_prepared(embedder: Counting, disk: DiskVectors) -> None:
    supply = Supply(disk, State.PREPARED)
    supply.renew(["before"])
    embedder.made.clear()

    assert set(supply.known(wanted("before", "prompt"))) == {key("before")}
    assert len(supply.vectors(wanted("before", "prompt"), 10)) == 2
    assert embedder.made == ["prompt"], "it takes the time of the model, though it is on disk"


def test_nothing_is_there_when_it_is_cold(embedder: Counting, disk: DiskVectors) -> None:
    supply = Supply(disk, State.COLD)
    supply.renew(["before"])
    embedder.made.clear()
    found: dict[bytes, Vectors] = supply.known(wanted("before"))

    assert found == {}
    assert supply.vectors(wanted("before"), 10).keys() == wanted("before").keys()
    supply.renew()
    assert supply.known(wanted("before")) == {}
    assert embedder.made == ["before"]


def test_a_repeated_request_gets_what_the_first_one_got_without_the_wait(embedder: Counting, disk: DiskVectors) -> None:
    supply = Supply(disk, State.PREPARED)
    supply.renew(["before"])
    supply.known(wanted("before", "prompt"))
    supply.vectors(wanted("prompt"), 10)
    assert supply.spared_s == 0
    supply.repeat()
    embedder.made.clear()

    assert set(supply.known(wanted("before", "prompt"))) == {key("before")}
    assert set(supply.vectors(wanted("prompt", "late"), 10)) == {key("prompt")}
    assert embedder.made == []
    assert supply.spared_s > 0

    supply.renew()
    assert supply.known(wanted("before", "prompt")) == {}


def test_without_vectors_there_are_no_embeddings() -> None:
    assert Supply(None).embeddings is None
