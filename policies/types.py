"""The values that a policy sees: slots, the window they stand in, and the context of one decision."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from policies.plan import Plan


class Kind(StrEnum):
    """What a slot is made of."""

    DIALOGUE = "dialogue"
    TOOL = "tool"
    SUMMARY = "summary"
    RECALL = "recall"


class Need(StrEnum):
    """What a policy asks the pipeline to gather before it plans; what is late or broken is left out."""

    USES = "uses"  # last_accessed_at and reference_count of the slots
    SIMILARITY = "similarity"  # Context.similarity
    RATINGS = "ratings"  # Context.similarity, as a model rates the slots
    VECTORS = "vectors"  # Context.vectors
    SUMMARIES = "summaries"  # Summarize actions can be fulfilled


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The smallest thing that can be evicted: one message, or an assistant message with its calls' results.

    `tokens` is what the slot costs in the prompt, framing included. `turn` is the slot's place among all slots
    of the conversation, those already evicted included; times are seconds since the epoch, None if unknown.
    A slot of kind TOOL holds `results` tool messages whose contents cost `result_tokens` of `tokens`.
    """

    id: str
    role: str
    text: str
    tokens: int
    turn: int
    kind: Kind = Kind.DIALOGUE
    created_at: float | None = None
    last_accessed_at: float | None = None
    reference_count: int = 0
    priority: int = 0
    cluster: int | None = None
    pinned: bool = False
    protected: bool = False
    orphan: bool = False  # a tool result that the client itself sent without its call: the first to go
    results: int = 0
    result_tokens: int = 0

    @property
    def evictable(self) -> bool:
        """Whether a policy may evict or shorten this slot."""
        return not (self.pinned or self.protected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The prompt as it would be sent: `used` tokens are the slots' and `overhead` (tool schemas, framing).

    `alternate`: what is left after the plan must alternate user and assistant turns, tool slots apart.
    `user_first`: the first slot left that is not system or developer must be a user's.
    """

    slots: tuple[Slot, ...]
    budget: int
    used: int
    overhead: int = 0
    alternate: bool = False
    user_first: bool = False


def length(text: str) -> int:
    """Tokens of `text` at four characters a token, where no counter was handed over."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the pipeline gathered for one decision.

    `query` is the current prompt (the last user message); `overflow` is how far the prompt is over the
    threshold's own target, as a share of the budget; `now` is seconds since the epoch; `count` gives the tokens
    of a text; `similarity` maps slot ids to their relevance to the query in 0..1; `vectors` maps slot ids to
    unit vectors (float32, one dimension); `query_vector` is the query's own, None where it has none.
    `summary_tokens` is the most that one summary may cost in the prompt, 0 where none can be written.
    """

    query: str = ""
    overflow: float = 0.0
    now: float | None = None
    count: Callable[[str], int] = length
    similarity: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    vectors: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    query_vector: object | None = None
    summary_tokens: int = 0


class Policy(Protocol):
    """Decides what leaves a window. An implementation is a frozen dataclass whose fields are its options."""

    name: ClassVar[str]

    @property
    def needs(self) -> frozenset[Need]:
        """What to gather before planning; a class variable where the options do not change it."""
        ...

    def plan(self, window: Window, target: int, context: Context) -> "Plan":
        """Actions that bring `window.used` to at most `target` tokens, or as near as pins and protection allow."""
        ...


@runtime_checkable
class Clusterer(Policy, Protocol):
    """A policy whose plans rest on clusters of slots. They can be made before its prompt is known."""

    def clusters(self, window: Window, target: int, context: Context) -> Mapping[str, int]:
        """The clusters of the slots that may go, by slot id; of those that have one (`Slot.cluster`), these."""
        ...


def reads_prompt(policy: Policy) -> bool:
    """Whether what a policy evicts depends on the current prompt, so that a plan cannot be made before it is known.

    A policy says so with an attribute `reads_prompt`; without one it does if it needs similarity or vectors.
    """
    return bool(getattr(policy, "reads_prompt", policy.needs & {Need.SIMILARITY, Need.VECTORS}))
