import numpy as np
import pytest

from policies.types import Context
from policies.value import similarities, values
from tests.policies.sample_windows import slot, window

PROMPT = "Which invoice was for the bicycle?"
BEFORE = window(
    slot("m0", text="The invoice for the bicycle is number 4711.", priority=30),
    slot("m1", "assistant", text="Nice weather today."),
    slot("m2", text="Two wheels and a bell, for 300 euros."),
    slot("m3", text=PROMPT, pinned=True),
)
VECTORS = {f"m{i}": np.eye(3, dtype=np.float32)[i] for i in range(3)}


def test_what_was_gathered_is_taken_as_it_is() -> None:
    context = Context(query=PROMPT, similarity={"m0": 0.1, "m1": 0.9, "m2": 0.2})
    assert values(BEFORE, context, "similarity") == {"m0": 0.1, "m1": 0.9, "m2": 0.2}


def test_what_is_late_counts_by_shared_keywords() -> None:
    found = values(BEFORE, Context(query=PROMPT, similarity={"m1": 0.9}), "similarity")
    assert found == {"m0": pytest.approx(2 / 4), "m1": 0.9, "m2": 0.0}


def test_where_nothing_was_gathered_the_texts_tell() -> None:
    found = values(BEFORE, Context(query=PROMPT), "similarity")
    assert found["m0"] == 1.0
    assert max(found["m1"], found["m2"]) < 1.0


def test_where_nothing_was_gathered_vectors_count_too() -> None:
    far = values(BEFORE, Context(query=PROMPT, vectors=VECTORS), "similarity")  # no vector of the prompt's own
    near = values(BEFORE, Context(query=PROMPT, vectors=VECTORS, query_vector=VECTORS["m2"]), "similarity")
    assert near["m2"] > far["m2"]
    assert near["m2"] > near["m1"]


def test_the_prompt_is_not_compared_with_itself() -> None:
    assert similarities(BEFORE, Context(query=PROMPT), BEFORE.slots[:3])["m0"] == 1.0
    assert similarities(BEFORE, Context(query=PROMPT), BEFORE.slots[:2])["m0"] == 1.0


def test_texts_are_read_only_where_nothing_at_all_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.value.relevance", lambda *_: pytest.fail("read"))

    assert similarities(BEFORE, Context(query=PROMPT), ()) == {}
    assert similarities(BEFORE, Context(query=PROMPT, similarity={"m1": 0.9}), BEFORE.slots[:1]) == {"m0": 0.5}


@pytest.mark.parametrize("query", ["", "  \n"])
def test_without_a_prompt_nothing_is_relevant(query: str) -> None:
    assert set(values(BEFORE, Context(query=query), "similarity").values()) == {0.0}


def test_tags_are_the_slots_own_priority() -> None:
    assert values(BEFORE, Context(query=PROMPT, similarity={"m0": 1.0}), "tags") == {"m0": 0.3, "m1": 0.0, "m2": 0.0}
