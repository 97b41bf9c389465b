"""How much a slot is worth for the current prompt, by the measure that a policy's options name."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from policies.keywords import keywords, overlap
from policies.relevance import Index, Vectors, relevance
from policies.turns import last_user
from policies.types import Context, Need, Slot, Window

Relevance = Literal["similarity", "keywords", "tags", "llm"]

_GATHERED = {"similarity": Need.SIMILARITY, "llm": Need.RATINGS}


def values(window: Window, context: Context, measure: Relevance) -> Mapping[str, float]:
    """The relevance of each evictable slot by id, 0..1.

    `similarity` and `llm`: what was gathered (`similarities`). `keywords`: the overlap of the slot's keywords with the
    prompt's. `tags`: the slot's own priority ÷ 100.
    """
    slots = [slot for slot in window.slots if slot.evictable]
    if measure == "tags":
        return {slot.id: slot.priority / 100 for slot in slots}
    if measure in _GATHERED:
        return similarities(window, context, slots)
    asked = keywords(context.query)
    return {slot.id: overlap(keywords(slot.text), asked) for slot in slots}


def similarities(window: Window, context: Context, slots: Sequence[Slot]) -> Mapping[str, float]:
    """The relevance of these slots of a window to the prompt, 0..1.

    It is what was gathered, and for a slot that is missing there the overlap of its keywords with the prompt's. Where
    nothing was gathered it is `policies.relevance` over the window's texts and what vectors there are.
    """
    known = context.similarity
    if slots and not known:
        known = _found(window, context)
    missing = [slot for slot in slots if slot.id not in known]
    asked = keywords(context.query) if missing else frozenset()
    late = {slot.id: overlap(keywords(slot.text), asked) for slot in missing}
    return {slot.id: known[slot.id] if slot.id in known else late[slot.id] for slot in slots}


def _found(window: Window, context: Context) -> Mapping[str, float]:
    if not context.query.strip():
        return {slot.id: 0.0 for slot in window.slots}
    prompt = last_user(window.slots)  # not itself among what it is compared with
    read = [slot for i, slot in enumerate(window.slots) if i != prompt]
    vectors = [cast("Vectors | None", context.vectors.get(slot.id)) for slot in read]
    asked = cast("Vectors | None", context.query_vector)
    scores = relevance(context.query, Index.of(slot.text for slot in read), vectors, asked)
    return {slot.id: float(score) for slot, score in zip(read, scores, strict=True)}


def needs(measure: str) -> frozenset[Need]:
    """What has to be gathered for a measure."""
    return frozenset({_GATHERED[measure]}) if measure in _GATHERED else frozenset()
