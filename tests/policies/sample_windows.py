"""Windows to plan on: written out by hand, and drawn at random."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.types import Context, Kind, Slot, Window

TEXTS = (
    "Where is my parcel with number 4711?",
    "It left the depot in Bremen yesterday.",
    "Please send the invoice for the blue bicycle to my office.",
    "The invoice for the bicycle was sent to your office.",
    "我的订单什么时候发货？",
    "订单明天发货，请耐心等待。",
    "Thanks!",
    "",
    "parcel 4711 bicycle invoice office depot " * 12,
)


def slot(id_: str, role: str = "user", tokens: int = 10, **fields: Any) -> Slot:
    kind = Kind.TOOL if role == "tool" else Kind.DIALOGUE
    fields.setdefault("turn", int("".join(filter(str.isdigit, id_)) or 0))
    if kind is Kind.TOOL:
        fields.setdefault("results", 1)
        fields.setdefault("result_tokens", max(tokens - 5, 0))
        role = "assistant"
    return Slot(id=id_, role=role, tokens=tokens, kind=fields.pop("kind", kind), text=fields.pop("text", ""), **fields)


def window(*slots: Slot, **fields: Any) -> Window:
    overhead = fields.setdefault("overhead", 0)
    used = sum(slot.tokens for slot in slots) + overhead
    fields.setdefault("budget", max(used, 1))
    return Window(slots=slots, used=used, **fields)


def talk(letters: str, tokens: int = 10, **fields: Any) -> Window:
    """A window from a line such as `S U* A T U!`: roles by letter, `*` pinned, `!` protected."""
    roles = {"S": "system", "D": "developer", "U": "user", "A": "assistant", "T": "tool"}
    slots = [
        slot(f"{mark[0]}{i}", roles[mark[0]], tokens, pinned="*" in mark or mark[0] in "SD", protected="!" in mark)
        for i, mark in enumerate(letters.split())
    ]
    return window(*slots, **fields)


@st.composite
def windows(draw: st.DrawFn, rules: bool = True) -> Window:
    """Any window a pipeline could hand over, and some it would not: nothing pinned, turns out of order, orphans."""
    n = draw(st.integers(0, 24))
    timed = draw(st.booleans())
    slots = []
    for i in range(n):
        role = draw(st.sampled_from(["user", "assistant", "user", "assistant", "tool", "orphan", "system", "note"]))
        text = draw(st.sampled_from(TEXTS))
        one = slot(f"s{i}", "tool" if role == "orphan" else role, draw(st.integers(1, 900)), text=text)
        one = replace(
            one,
            pinned=role == "system" or draw(st.integers(0, 9)) == 0,
            protected=draw(st.integers(0, 9)) == 0,
            reference_count=draw(st.integers(0, 6)),
            priority=draw(st.sampled_from([0, 0, 50, 100])),
            created_at=1000.0 + 60 * i if timed else None,
            last_accessed_at=draw(st.none() | st.integers(1000, 3000)) if timed else None,
        )
        if role == "orphan":
            one = replace(one, role="tool", orphan=True)
        if role == "note":
            one = replace(one, role="user", kind=draw(st.sampled_from([Kind.SUMMARY, Kind.RECALL])))
        slots.append(one)
    flags = {key: draw(st.booleans()) for key in ("alternate", "user_first")} if rules else {}
    return window(*slots, overhead=draw(st.integers(0, 50)), **flags)


@st.composite
def contexts(draw: st.DrawFn) -> Context:
    similarity = draw(st.dictionaries(st.sampled_from([f"s{i}" for i in range(24)]), st.floats(0, 1), max_size=24))
    return Context(
        query=draw(st.sampled_from(TEXTS)),
        now=draw(st.none() | st.just(5000.0)),
        similarity=similarity,
        overflow=draw(st.sampled_from([0.0, 0.15, 0.25, 0.5])),
        vectors={f"s{i}": _direction(i) for i in draw(st.sets(st.integers(0, 24), max_size=24))},
        query_vector=draw(st.none() | st.just(_direction(3))),
        summary_tokens=draw(st.sampled_from([0, 120, 200])),
    )


def _direction(i: int) -> NDArray[np.float32]:
    """A unit vector of few dimensions; every seventh is the same."""
    angles = np.arange(8, dtype=np.float32) * (i % 7 + 1)
    return np.asarray(np.cos(angles) / np.linalg.norm(np.cos(angles)), dtype=np.float32)
