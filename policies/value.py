"""How much a slot is worth for the current prompt, by the measure that a policy's options name."""

from collections.abc import Mapping
from typing import Literal

from policies.keywords import keywords, overlap
from policies.types import Context, Need, Window

Relevance = Literal["similarity", "keywords", "tags", "llm"]

_GATHERED = frozenset({"similarity", "llm"})


def values(window: Window, context: Context, relevance: Relevance) -> Mapping[str, float]:
    """The relevance of each evictable slot by id, 0..1.

    `similarity` and `llm` are what `context.similarity` holds; a slot that is missing there gets the overlap of its
    keywords with the prompt's, which is `keywords`. `tags`: the slot's own priority ÷ 100.
    """
    slots = [slot for slot in window.slots if slot.evictable]
    if relevance == "tags":
        return {slot.id: slot.priority / 100 for slot in slots}
    known = context.similarity if relevance in _GATHERED else {}
    asked = keywords(context.query)
    return {slot.id: known[slot.id] if slot.id in known else overlap(keywords(slot.text), asked) for slot in slots}


def needs(relevance: str) -> frozenset[Need]:
    """What has to be gathered for a measure."""
    return frozenset({Need.SIMILARITY}) if relevance in _GATHERED else frozenset()
