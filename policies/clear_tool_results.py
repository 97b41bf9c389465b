"""For agents: old tool results make room, the calls stay."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from policies.greedy import evict_lowest
from policies.plan import Plan, Shrink, apply
from policies.registry import register
from policies.types import Context, Kind, Need, Slot, Window


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank, because upstreams refuse emptied messages")
    return text


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClearToolResults:
    """Replaces the oldest tool results by a short placeholder; their calls stay.

    The last `keep` results stay, and so does what is no longer than the placeholder. Where clearing is not enough,
    the oldest slots go, cleared or not.
    """

    name: ClassVar[str] = "clear_tool_results"
    needs: ClassVar[frozenset[Need]] = frozenset()

    placeholder: Annotated[
        str, AfterValidator(_not_blank), Field(max_length=2000, description="what stands in a cleared result's place")
    ] = "[Result removed to save context. Call the tool again if it is needed.]"
    keep: Annotated[int, Field(ge=0, description="how many of the last results are left as they are")] = 3

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        """Clear the oldest results until the target is met, then evict the oldest slots if it is not."""
        cost = context.count(self.placeholder)
        used = window.used
        cleared: list[Shrink] = []
        for slot in self._clearable(window, cost):
            if used <= target:
                break
            saved = slot.result_tokens - slot.results * cost
            used -= saved
            cleared.append(Shrink(slot.id, self.placeholder, f"old tool results cleared: {saved} tokens saved"))
        after = apply(Plan(self.name, tuple(cleared)), window, context.count)
        evicted = evict_lowest(
            after, target, lambda slot: slot.turn, "clearing tool results was not enough: oldest first"
        )
        gone = {action.slot for action in evicted}
        return Plan(self.name, (*(action for action in cleared if action.slot not in gone), *evicted))

    def _clearable(self, window: Window, cost: int) -> list[Slot]:
        """Slots whose results may be cleared and would save tokens, oldest first; orphans are left to be evicted."""
        found: list[Slot] = []
        newer = 0
        for slot in reversed(window.slots):
            if slot.kind is not Kind.TOOL:
                continue
            saves = slot.results > 0 and slot.result_tokens > slot.results * cost
            if newer >= self.keep and slot.evictable and saves and not slot.orphan:
                found.append(slot)
            newer += slot.results
        return found[::-1]
