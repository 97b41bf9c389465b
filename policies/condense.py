"""Evictions of one cluster made into one summary."""

from collections.abc import Iterator, Mapping, Sequence

from policies.plan import Action, Evict, Summarize
from policies.turns import last_user
from policies.types import Kind, Slot, Window

LEAST = 96  # tokens: of fewer, the frame of a note takes the most


def affordable(reserve: int, summary_tokens: int) -> int:
    """How much of `reserve` tokens summaries can use: none where none can be written or not even one fits."""
    return reserve if min(reserve, summary_tokens) >= LEAST else 0


def condense(
    evictions: Sequence[Evict], clusters: Mapping[str, int], window: Window, room: int, summary_tokens: int
) -> tuple[Action, ...]:
    """The evictions, with those of a cluster replaced by one summary where `room` tokens allow.

    The clusters that lose most are summarised, in at most `summary_tokens` each and half of what they lose. What
    follows the last user message is never summarised, nor are orphans and recall notes; an earlier summary is part of
    a later one rather than lost, so clusters with one come first.
    """
    slots = {slot.id: slot for slot in window.slots[: last_user(window.slots)]}
    lost: dict[int, list[Slot]] = {}
    for eviction in evictions:
        slot = slots.get(eviction.slot)
        if slot is not None and slot.id in clusters and not slot.orphan and slot.kind is not Kind.RECALL:
            lost.setdefault(clusters[slot.id], []).append(slot)
    chosen = list(_chosen(lost, room, summary_tokens))
    gone = {id_ for action in chosen for id_ in action.slots}
    return (*(eviction for eviction in evictions if eviction.slot not in gone), *chosen)


def _chosen(lost: Mapping[int, Sequence[Slot]], room: int, summary_tokens: int) -> Iterator[Summarize]:
    def weight(cluster: int) -> tuple[bool, int, int]:
        slots = lost[cluster]
        earlier = any(slot.kind is Kind.SUMMARY for slot in slots)
        return (not earlier, -sum(slot.tokens for slot in slots), cluster)

    for cluster in sorted(lost, key=weight):
        slots = sorted(lost[cluster], key=lambda slot: slot.turn)
        before = sum(slot.tokens for slot in slots)
        tokens = min(summary_tokens, room, before // 2)
        if tokens < LEAST:
            continue
        room -= tokens
        yield Summarize(
            slots=tuple(slot.id for slot in slots),
            reason=f"{len(slots)} slots of cluster {cluster} in at most {tokens} tokens instead of {before}",
            tokens=tokens,
            references=sum(slot.reference_count for slot in slots),
        )
