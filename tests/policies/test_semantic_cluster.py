import numpy as np
from numpy.typing import NDArray

from policies.plan import Evict, Summarize, apply, check
from policies.semantic_cluster import SemanticCluster
from policies.types import Context, Need, Window
from tests.policies.sample_windows import slot, window


def topics(*numbers: int) -> dict[str, NDArray[np.float32]]:
    return {f"m{i}": np.eye(8, dtype=np.float32)[number] for i, number in enumerate(numbers, 1)}


def talked(n: int, tokens: int = 100, **fields: bool) -> Window:
    """A system prompt of 10 tokens, `n` turns, and the prompt of 10."""
    turns = (slot(f"m{i}", "assistant" if i % 2 == 0 else "user", tokens, reference_count=i) for i in range(1, n + 1))
    return window(slot("m0", "system", pinned=True), *turns, slot(f"m{n + 1}", pinned=True), **fields)


def left(before: Window, target: int, context: Context, policy: SemanticCluster | None = None) -> list[str]:
    plan = (policy or SemanticCluster()).plan(before, target, context)
    check(plan, before)
    after = apply(plan, before)
    assert after.used <= target
    return [one.id for one in after.slots]


def test_of_each_cluster_the_newest_stays() -> None:
    before = talked(6)
    assert left(before, 320, Context(vectors=topics(0, 0, 1, 1, 2, 2))) == ["m0", "m2", "m4", "m6", "m7"]


def test_where_clusters_are_bounded_each_keeps_its_newest_in_turns() -> None:
    before = talked(8)
    context = Context(vectors=topics(0, 1, 0, 1, 0, 1, 0, 0))
    assert left(before, 420, context, SemanticCluster(max_clusters=2)) == ["m0", "m4", "m6", "m7", "m8", "m9"]


def test_one_summary_stands_for_the_rest_of_a_cluster() -> None:
    before = talked(6, tokens=400)
    context = Context(vectors=topics(0, 0, 0, 1, 1, 1), summary_tokens=200)
    plan = SemanticCluster(summaries=0.3).plan(before, 1400, context)
    check(plan, before)
    summaries = [action for action in plan.actions if isinstance(action, Summarize)]
    assert [(one.slots, one.tokens, one.references, one.priority) for one in summaries] == [
        (("m1", "m2"), 200, 3, 70),
        (("m4", "m5"), 200, 9, 70),
    ]
    after = apply(plan, before)
    assert [one.id for one in after.slots] == ["m0", "m1", "m3", "m4", "m6", "m7"]
    assert after.used == 20 + 2 * 400 + 2 * 200


def test_without_summaries_the_rest_of_a_cluster_is_evicted_and_its_room_is_used() -> None:
    before = talked(6, tokens=400)
    vectors = topics(0, 0, 0, 1, 1, 1)
    plan = SemanticCluster(summaries=0.3).plan(before, 1400, Context(vectors=vectors, summary_tokens=0))
    assert all(isinstance(action, Evict) for action in plan.actions)
    assert [one.id for one in apply(plan, before).slots] == ["m0", "m3", "m5", "m6", "m7"]


def test_summaries_are_asked_for_only_where_there_is_room_for_them() -> None:
    assert SemanticCluster().needs == {Need.VECTORS, Need.SUMMARIES, Need.USES}
    assert SemanticCluster(summaries=0).needs == {Need.VECTORS}


def test_where_turns_alternate_an_exchange_stays_for_the_newer_half() -> None:
    before = talked(6, alternate=True, user_first=True)
    context = Context(vectors=topics(0, 1, 2, 0, 2, 0))
    assert left(before, 320, context) == ["m0", "m5", "m6", "m7"]
    assert left(before, 420, context) == ["m0", "m1", "m2", "m5", "m6", "m7"]  # m2 alone speaks of its topic


def test_the_reason_names_the_cluster_and_how_much_newer_there_is() -> None:
    plan = SemanticCluster().plan(talked(4), 220, Context(vectors=topics(0, 0, 0, 1)))
    assert [action.reason for action in plan.actions] == [
        "cluster 0: 2 newer slots of it",
        "cluster 0: 1 newer slots of it",
    ]
