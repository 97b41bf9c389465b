"""How much a slot is worth for the current prompt, by the measure that a policy's options name."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from policies.keywords import keywords, overlap
from policies.relevance import Index, Vectors, relevance
from policies.turns import last_user
from policies.types import Context, Need, Slot, Window

Relevance = Literal["similarity", "keywords", "tags", "llm"]

_GATHERED = frozenset({"similarity", "llm"})


def values(window: Window, context: Context, measure: Relevance) -> Mapping[str, float]:
    """The relevance of each evictable slot by id, 0..1.

    `similarity` and `llm` are what `context.similarity` holds; a slot that is missing there gets its relevance by the
    texts and vectors at hand (`policies.relevance`), which are words alone where there are no vectors. `keywords`: the
    overlap of its keywords with the prompt's. `tags`: its own priority ÷ 100.
    """
    slots = [slot for slot in window.slots if slot.evictable]
    if measure == "tags":
        return {slot.id: slot.priority / 100 for slot in slots}
    if measure in _GATHERED:
        return similarities(window, context, slots)
    asked = keywords(context.query)
    return {slot.id: overlap(keywords(slot.text), asked) for slot in slots}


def similarities(window: Window, context: Context, slots: Sequence[Slot]) -> Mapping[str, float]:
    """The relevance of these slots of a window to the prompt, 0..1: what was gathered, else what can be found here."""
    known = context.similarity
    if all(slot.id in known for slot in slots):
        return {slot.id: known[slot.id] for slot in slots}
    prompt = last_user(window.slots)
    read = [slot for i, slot in enumerate(window.slots) if i != prompt]
    vectors = [cast("Vectors | None", context.vectors.get(slot.id)) for slot in read]
    scores = relevance(
        context.query, Index.of(slot.text for slot in read), vectors, cast("Vectors | None", context.query_vector)
    )
    found = {slot.id: float(score) for slot, score in zip(read, scores, strict=True)}
    return {slot.id: known[slot.id] if slot.id in known else found.get(slot.id, 0.0) for slot in slots}


def needs(measure: str) -> frozenset[Need]:
    """What has to be gathered for a measure."""
    return frozenset({Need.SIMILARITY}) if measure in _GATHERED else frozenset()
