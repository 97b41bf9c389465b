"""Slots that speak of the same thing: k-means over their vectors, with a fixed seed."""

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from policies.keywords import keywords
from policies.types import Slot

SEED = 0
ROUNDS = 6  # of k-means: what later ones change is not worth their time
AHEAD = 512  # clusters at the most, where nobody waits: more would take seconds
QUICK = 200  # slots that are clustered by their words where there is no time for more
FEATURES = 512  # of the hashed word vectors that stand in for slots without one

Matrix = NDArray[np.float32]


def load() -> None:
    """Import what clustering needs: most of a second, at the start of a worker rather than in a request."""
    _kmeans(_hashed(["one", "two", "three"]), 2)


def wanted(slots: Sequence[Slot], target: int, at_most: int) -> int:
    """How many clusters: target ÷ mean tokens of a slot, rounded up; at least 1, at most `at_most` and one a slot."""
    tokens = sum(slot.tokens for slot in slots)
    k = math.ceil(max(target, 1) * len(slots) / max(tokens, 1))
    return max(1, min(k, at_most, len(slots)))


def clustered(slots: Sequence[Slot], k: int, vectors: Mapping[str, object], *, quick: bool = False) -> dict[str, int]:
    """The cluster of each slot by its id, numbered from 0 in the order in which the clusters begin.

    Clusters that came prepared (`Slot.cluster`) are used as they are, and a slot that came later joins the nearest.
    Otherwise about `k` are made: of the slots with a vector by those, of the others by their words, the two kinds
    apart because their distances do not compare. Where it has to be `quick`, more than `QUICK` slots without a vector
    are cut into stretches of the conversation instead. The same slots always give the same clusters.
    """
    known = [slot for slot in slots if slot.cluster is not None]
    if 2 * len(known) >= len(slots) > 0:
        return _numbered(slots, _joined(slots, known, vectors))
    dense = [slot for slot in slots if slot.id in vectors]
    terms = [slot for slot in slots if slot.id not in vectors]
    share = round(k * len(dense) / max(len(slots), 1))
    found: dict[str, int] = {}
    if dense:
        ks = min(max(share, 1), k - 1 if terms and k > 1 else k)
        labels = _kmeans(_rows(dense, vectors), ks)
        found.update(zip([slot.id for slot in dense], labels, strict=True))
    if terms:
        after = max(found.values(), default=-1) + 1
        ks = max(k - after, 1)
        if quick and len(terms) > QUICK:
            labels = [i * ks // len(terms) for i in range(len(terms))]
        else:
            labels = _kmeans(_hashed([slot.text for slot in terms]), ks)
        found.update((slot.id, after + label) for slot, label in zip(terms, labels, strict=True))
    return _numbered(slots, found)


def _rows(slots: Sequence[Slot], vectors: Mapping[str, object]) -> Matrix:
    return np.array([vectors[slot.id] for slot in slots], dtype=np.float32)


def _joined(slots: Sequence[Slot], known: Sequence[Slot], vectors: Mapping[str, object]) -> dict[str, int]:
    """The prepared clusters, and for a slot that has none the one whose middle is nearest, or a new one for all."""
    found = {slot.id: slot.cluster for slot in known if slot.cluster is not None}
    rest = [slot for slot in slots if slot.id not in found]
    if not rest:
        return found
    placed = [slot for slot in known if slot.id in vectors]
    late = [slot for slot in rest if slot.id in vectors] if placed else []
    if late:
        labels = np.array([found[slot.id] for slot in placed])
        rows = _rows(placed, vectors)
        names, which = np.unique(labels, return_inverse=True)
        middles = np.zeros((len(names), rows.shape[1]), dtype=np.float32)
        np.add.at(middles, which, rows)
        middles /= np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-9)
        nearest = names[np.argmax(_rows(late, vectors) @ middles.T, axis=1)]
        found.update((slot.id, int(label)) for slot, label in zip(late, nearest, strict=True))
    fresh = max(found.values()) + 1
    return {slot.id: found.get(slot.id, fresh) for slot in slots}


def _numbered(slots: Sequence[Slot], found: Mapping[str, int]) -> dict[str, int]:
    order: dict[int, int] = {}
    return {slot.id: order.setdefault(found[slot.id], len(order)) for slot in slots}


def _kmeans(rows: Matrix, k: int) -> list[int]:
    """The cluster of each row; rows that are the same count as one, because k-means cannot part them."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    k = min(k, len(places))
    if k <= 1:
        return [0] * len(rows)
    if k == len(places):
        return which
    first = list(dict(zip(reversed(which), range(len(rows) - 1, -1, -1), strict=True)).items())
    distinct = rows[[row for _, row in sorted(first)]]
    # Imported when first needed: it takes most of a second.
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]

    # Begun with rows spread over the conversation: k-means++ costs ten times as much here and is hardly closer.
    start = distinct[np.linspace(0, len(distinct) - 1, k).round().astype(int)]
    model = KMeans(k, init=start, n_init=1, max_iter=ROUNDS, random_state=SEED)
    # One thread: sums over several come out in another order each time, and with them now and then a cluster.
    with _threads().limit(limits=1):
        labels = model.fit(distinct, sample_weight=np.bincount(which)).labels_
    return [int(labels[i]) for i in which]


def _hashed(texts: Sequence[str]) -> Matrix:
    """Unit TF-IDF vectors of the texts' keywords, hashed to `FEATURES` dimensions; a text without any is zero."""
    from sklearn.feature_extraction import FeatureHasher  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import TfidfTransformer  # type: ignore[import-untyped]

    hasher = FeatureHasher(FEATURES, input_type="string", alternate_sign=False, dtype=np.float32)
    found = hasher.transform(sorted(keywords(text)) for text in texts)
    return np.asarray(TfidfTransformer().fit_transform(found).toarray(), dtype=np.float32)


@cache
def _threads() -> ThreadpoolController:
    """Knows the thread pools that are loaded: to be asked for once scikit-learn is."""
    return ThreadpoolController()
