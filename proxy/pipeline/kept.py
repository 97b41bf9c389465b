"""Why a slot stayed, and by which rules of its route, for readers who have nothing but the audit record. (pure)"""

from collections.abc import Mapping, Set

from policies.types import Kind, Slot, Window
from proxy.pipeline.budget import cached
from proxy.pipeline.prompt import Prompt, marked
from proxy.route import Route

INSTRUCTIONS = ("system", "developer")


def reasons(window: Window, prompt: Prompt, route: Route, asked: Set[str]) -> Mapping[str, str]:
    """Why the slots of a window whose ids are `asked` for stayed, though nothing was decided about them.

    They are told apart in the order in which the rules are applied, so that each slot has the first that holds.
    """
    own = [slot for slot in window.slots if slot.kind not in (Kind.SUMMARY, Kind.RECALL)]
    users = [slot.id for slot in own if slot.role == "user"]
    newest = {slot.id for slot in own[-route.protect_last :]} if route.protect_last else set()
    tools, text = route.pins.tools, route.pins.text
    last = own[-1].id if own else ""

    def pinned(slot: Slot) -> str:
        if slot.role in INSTRUCTIONS:
            return "pinned: instructions never go"
        if users and slot.id == users[-1]:
            return "pinned: the current prompt"
        if users and slot.id == users[0] and route.pins.first_user:
            return "pinned: the task, the first user message (pin.first_user)"
        if slot.id == last and slot.role == "assistant":
            return "pinned: the answer that is being continued"
        if tools and slot.kind is Kind.TOOL and _calls(slot, prompt) & tools:
            return f"pinned: a call of {', '.join(sorted(_calls(slot, prompt) & tools))} (pin.tools)"
        if any(regex.search(slot.text) for regex in text):
            return "pinned: its text matches the route's pin.text"
        return "pinned: no policy may take it (x-trimtab-pin, or a role that is not known)"

    def protected(slot: Slot) -> str:
        if slot.id in newest:
            return f"protected: one of the newest {route.protect_last} slots (protect_last)"
        if users and slot.id == users[0] and route.pins.first_user and slot.tokens > window.budget / 4:
            return "protected: the task, not pinned since it is over a quarter of the budget (pin.first_user)"
        if not cached(route, window.budget) and slot.id not in marked(prompt):
            return "protected: what the user said, in a prompt too short to be cached (the policy's keep_said)"
        share = f"{route.keep_prefix:.0%} of the budget, {int(route.keep_prefix * window.budget):,} tokens at most"
        return f"protected: the oldest, kept for the provider's cache (keep_prefix: {share})"

    def reason(slot: Slot) -> str:
        if slot.pinned:
            return pinned(slot)
        return protected(slot) if slot.protected else "stayed: the target was reached without it"

    return {slot.id: reason(slot) for slot in window.slots if slot.id in asked}


def rules(route: Route) -> dict[str, object]:
    """The settings of a route that decide when it cuts, how deep, and what it leaves alone."""
    return {
        "thresholds": {"evict": route.thresholds.evict, "emergency": route.thresholds.emergency},
        "targets": {"evict": route.targets.evict, "emergency": route.targets.emergency},
        "breathing_turns": route.breathing_turns,
        "keep_prefix": route.keep_prefix,
        "protect_last": route.protect_last,
        "on_overflow": route.on_overflow.value,
    }


def _calls(slot: Slot, prompt: Prompt) -> set[str]:
    """The names of the tools that a slot calls."""
    group = next((group for group in prompt.groups if f"m{group.messages[0]}" == slot.id), None)
    if group is None:
        return set()
    messages = (prompt.messages[index] for index in group.messages)
    return {call.name for message in messages if message is not None for call in message.calls if call.name}
