import pytest

from policies.adaptive import Adaptive
from policies.rwr import Rwr
from policies.types import Context, Kind
from tests.policies.sample_windows import slot, talk, window

BEFORE = talk("S U A U A U A! U! A! U*")
OLD, LATEST = ("U1", "A2", "U3", "A4"), ("U5", "A6", "U7", "A8")


def context(old: float, latest: float) -> Context:
    return Context(
        query="where is it?",
        similarity={"U1": old, **dict.fromkeys(OLD[1:], 0.0), "A8": latest, **dict.fromkeys(LATEST[:-1], 0.0)},
    )


WEIGHTS: list[tuple[str, Adaptive, float, float, float, str]] = [
    # old, latest, beta
    ("points-back", Adaptive(), 1.0, 0.25, 0.7, "points back (similarity 0.25 to the latest 4, 1.00 to older)"),
    ("goes-on", Adaptive(), 0.25, 0.75, 0.2, "goes on from the last turn (similarity 0.75 to the latest 4, 0.25 to"),
    ("neither", Adaptive(), 0.5, 0.5, 0.4, "goes on from the last turn"),
    ("held-low", Adaptive(swing=1), 0.0, 1.0, 0.1, "goes on"),
    ("held-high", Adaptive(swing=1, beta=0.9), 1.0, 0.0, 0.9, "points back"),
    ("free", Adaptive(swing=1, beta=0.9, least=0), 1.0, 0.0, 1.0, "points back"),
    ("no-swing", Adaptive(swing=0, beta=0.3), 1.0, 0.0, 0.3, "points back"),
    ("nothing-known", Adaptive(), 0.0, 0.0, 0.4, "nothing tells where the prompt points"),
    ("one-latest", Adaptive(latest=1), 0.2, 0.7, 0.2, "similarity 0.70 to the latest 1"),
]


@pytest.mark.parametrize(("_id", "policy", "old", "latest", "beta", "why"), WEIGHTS, ids=[case[0] for case in WEIGHTS])
def test_weights_follow_where_the_prompt_points(
    _id: str, policy: Adaptive, old: float, latest: float, beta: float, why: str
) -> None:
    weights = policy.weights(BEFORE, context(old, latest))
    assert weights.beta == pytest.approx(beta)
    assert weights.alpha == pytest.approx(1 - beta)
    assert why in weights.why


def test_with_nothing_older_than_the_latest_the_weights_are_the_base_ones() -> None:
    before = talk("S U A U A U*")
    assert Adaptive().weights(before, Context(query="it", similarity={"U1": 0.9})).beta == pytest.approx(0.4)


def test_instructions_and_notes_do_not_count_as_what_the_prompt_points_to() -> None:
    before = window(slot("s0", "system", pinned=True), slot("n1", kind=Kind.RECALL), *talk("U A U A U A U*").slots)
    seen = Context(query="it", similarity={"s0": 1.0, "n1": 1.0, "U0": 0.2, "A5": 0.7})
    assert Adaptive().weights(before, seen).beta == pytest.approx(0.2)


def test_slots_are_ranked_by_the_weights_and_each_reason_tells_them() -> None:
    seen = context(1.0, 0.25)
    plan = Adaptive().plan(BEFORE, 60, seen)
    ranked = Rwr(alpha=0.3, beta=0.7).plan(BEFORE, 60, seen)
    assert [(a.slot, pytest.approx(a.score)) for a in ranked.actions] == [(a.slot, a.score) for a in plan.actions]  # type: ignore[union-attr]
    assert all("; alpha 0.30, beta 0.70: the prompt points back" in action.reason for action in plan.actions)
    assert "U1" not in {action.slot for action in plan.actions}  # type: ignore[union-attr]


def test_without_gathered_similarity_the_texts_tell() -> None:
    texts = [
        "The fleet needs shorter routes.",
        "Shorter routes need distance and load.",
        *["Lovely weather today."] * 4,
    ]
    turns = [slot(f"m{i}", "assistant" if i % 2 else "user", text=text) for i, text in enumerate(texts)]
    before = window(*turns, slot("m6", text="Back to the fleet and its routes?", pinned=True))
    found = Adaptive().weights(before, Context(query="Back to the fleet and its routes?"))
    assert found.beta > 0.6
    assert "points back" in found.why
