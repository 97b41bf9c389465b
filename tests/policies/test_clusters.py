import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.clusters import QUICK, clustered, wanted
from policies.types import Slot
from tests.policies.sample_windows import slot

ROOT = Path(__file__).parents[2]
TOPICS = {
    "parcel": ["Where is my parcel 4711?", "The parcel 4711 left the depot.", "Has the parcel arrived at the depot?"],
    "invoice": ["Please send the invoice.", "The invoice was sent by mail.", "I need that invoice by mail again."],
    "发货": ["我的订单什么时候发货？", "订单明天发货。", "发货以后订单会更新。"],
}
TEXTS = [texts[i] for i in range(3) for texts in TOPICS.values()]  # the topics in turns
ALTERNATING = [0, 1, 2] * 3


def said(*texts: str, tokens: int = 10) -> list[Slot]:
    return [slot(f"s{i}", text=text, tokens=tokens) for i, text in enumerate(texts)]


def near(*topics: int, dimensions: int = 16) -> dict[str, NDArray[np.float32]]:
    """For each slot a unit vector near that of its topic."""
    noise = np.random.default_rng(1)
    rows = np.eye(dimensions, dtype=np.float32)[list(topics)] + noise.normal(0, 0.05, (len(topics), dimensions))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return {f"s{i}": row.astype(np.float32) for i, row in enumerate(rows)}


def test_slots_whose_vectors_are_near_share_a_cluster() -> None:
    found = clustered(said(*TEXTS), 3, near(*ALTERNATING))
    assert list(found.values()) == ALTERNATING


def test_without_vectors_slots_that_share_words_share_a_cluster() -> None:
    """In Chinese too."""
    found = clustered(said(*TEXTS), 3, {})
    assert list(found.values()) == ALTERNATING


def test_slots_with_and_without_a_vector_are_clustered_apart() -> None:
    vectors = near(*ALTERNATING)
    known = {f"s{i}": vectors[f"s{i}"] for i in range(6)}
    found = clustered(said(*TEXTS), 4, known)
    with_, without = ({found[f"s{i}"] for i in part} for part in (range(6), range(6, 9)))
    assert (len(with_), len(without)) == (3, 1)
    assert not with_ & without


def test_prepared_clusters_are_used_and_what_came_later_joins_the_nearest() -> None:
    slots = [slot(f"s{i}", cluster=40 + i % 3 if i < 6 else None) for i in range(9)]
    assert list(clustered(slots, 9, near(*ALTERNATING)).values()) == ALTERNATING


def test_what_came_later_without_a_vector_is_a_cluster_of_its_own() -> None:
    slots = [slot(f"s{i}", cluster=i % 3 if i < 6 else None) for i in range(8)]
    assert list(clustered(slots, 9, {}).values()) == [0, 1, 2, 0, 1, 2, 3, 3]


def test_few_prepared_clusters_are_made_anew() -> None:
    slots = [slot(f"s{i}", cluster=0 if i < 2 else None) for i in range(9)]
    assert list(clustered(slots, 3, near(*ALTERNATING)).values()) == ALTERNATING


def test_in_a_hurry_many_slots_without_vectors_are_cut_into_stretches() -> None:
    slots = said(*(f"text {i}" for i in range(QUICK + 1)))
    found = list(clustered(slots, 4, {}, quick=True).values())
    assert found == sorted(found)
    assert [round(found.count(i), -1) for i in range(4)] == [50] * 4


def test_libraries_are_imported_when_asked_for_and_not_with_the_module() -> None:
    script = (
        "import sys; from policies.clusters import load; assert 'sklearn' not in sys.modules; load();"
        "loaded = set(sys.modules); from policies.clusters import clustered; from policies.types import Slot;"
        "said = [Slot(id=t, role='user', text=t, tokens=1, turn=0) for t in ('here', 'there', 'gone')];"
        "clustered(said, 2, {}); assert set(sys.modules) == loaded, set(sys.modules) - loaded"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


SIZES: list[tuple[str, int, int, int, int]] = [
    # slots of 10 tokens, target, at most, k
    ("target-by-mean", 20, 45, 64, 5),
    ("bounded", 20, 180, 8, 8),
    ("one-a-slot", 3, 500, 64, 3),
    ("at-least-one", 20, 0, 64, 1),
]


@pytest.mark.parametrize(("_id", "n", "target", "at_most", "k"), SIZES, ids=[case[0] for case in SIZES])
def test_there_are_as_many_clusters_as_slots_of_the_mean_size_fit(
    _id: str, n: int, target: int, at_most: int, k: int
) -> None:
    assert wanted(said(*"a" * n), target, at_most) == k


@settings(max_examples=60, deadline=None)
@given(
    topics=st.lists(st.integers(0, 5), max_size=40),
    k=st.integers(1, 70),
    known=st.sets(st.integers(0, 39)),
    quick=st.booleans(),
)
def test_any_slots_fall_into_at_most_k_clusters_the_same_each_time(
    topics: list[int], k: int, known: set[int], quick: bool
) -> None:
    """Texts and vectors that repeat, and blank texts, included; one more where both kinds need a cluster."""
    slots = said(*(["", "", *TEXTS][topic] for topic in topics))
    vectors = {f"s{i}": np.eye(8, dtype=np.float32)[topic] for i, topic in enumerate(topics) if i in known}
    found = clustered(slots, k, vectors, quick=quick)
    assert list(found) == [one.id for one in slots]
    assert len(set(found.values())) <= max(k, 2)
    assert sorted(set(found.values())) == list(range(len(set(found.values()))))
    assert clustered(slots, k, vectors, quick=quick) == found
