"""What a decision needs to know of the messages: vectors and their relevance to the prompt, within a time limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.relevance import Index, Vectors, pooled, relevance
from proxy.embeddings import Embeddings
from proxy.pipeline.prompt import slot_id
from proxy.recall.library import Library
from proxy.wire.chat import Message
from proxy.wire.grouping import INSTRUCTIONS, Group

NEW = 2  # messages that a turn adds: an answer and a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The vectors that were there in time, by message; `query` is the message with the current prompt.

    `late` counts the texts that have no vector yet, and `waited` those that were not there beforehand. `dense`:
    vectors were wanted at all.
    """

    query: int | None = None
    vectors: Mapping[int, Vectors] = field(default_factory=dict)
    dense: bool = False
    late: int = 0
    waited: int = 0

    @property
    def query_vector(self) -> Vectors | None:
        """The prompt's own vectors."""
        return self.vectors.get(self.query) if self.query is not None else None

    @property
    def prepared(self) -> bool:
        """Whether the vectors were there beforehand, but for those of what the client has just added."""
        return bool(self.vectors) and not self.late and self.waited <= NEW

    @property
    def report(self) -> dict[str, object]:
        """What an audit record says of it."""
        return {"vectors": len(self.vectors), "waited": self.waited, "late": self.late, "without": self.without}

    @property
    def without(self) -> str | None:
        """What was done without: all vectors, or some."""
        if not self.dense or not self.late:
            return None
        return "some vectors" if self.vectors else "vectors"


def last_user(messages: Sequence[Message]) -> int | None:
    """The index of the current prompt; None where there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), None)


class Gatherer:
    """Gathers for one decision at a time; `wait_s` is the most that a request waits for vectors, in seconds."""

    def __init__(self, embeddings: Embeddings | None, library: Library, *, wait_s: float = 0.15) -> None:
        self._embeddings = embeddings
        self.library = library
        self._wait_s = wait_s

    async def gather(self, messages: Sequence[Message], *, dense: bool) -> Gathered:
        """What is there within the time limit; to be awaited on the event loop."""
        if not dense or self._embeddings is None:
            return Gathered(query=last_user(messages), dense=dense, late=self._absent(messages, dense))
        wanted = self._wanted(messages)
        before = self._embeddings.known(wanted)
        found = before if len(before) == len(wanted) else await self._embeddings.gather(wanted, self._wait_s)
        return self._gathered(messages, wanted, before, found)

    def wait(self, messages: Sequence[Message], *, dense: bool) -> Gathered:
        """The same, for a thread that may block."""
        if not dense or self._embeddings is None:
            return Gathered(query=last_user(messages), dense=dense, late=self._absent(messages, dense))
        wanted = self._wanted(messages)
        before = self._embeddings.known(wanted)
        found = before if len(before) == len(wanted) else self._embeddings.vectors(wanted, self._wait_s)
        return self._gathered(messages, wanted, before, found)

    def prepare(self, messages: Sequence[Message]) -> None:
        """Have the vectors made that the next decision will need, the newest first, whenever there is time."""
        if self._embeddings is not None:
            self._embeddings.prepare(self._wanted(messages))

    def relevances(self, messages: Sequence[Message], gathered: Gathered) -> Mapping[int, float]:
        """The relevance of each message to the prompt, 0..1, but for the prompt itself and instructions."""
        if gathered.query is None:
            return {}
        indexes = [i for i, m in enumerate(messages) if i != gathered.query and m.role not in INSTRUCTIONS]
        index = Index(tuple(self.library.passage(messages[i]) for i in indexes))
        vectors = [gathered.vectors.get(i) for i in indexes]
        scores = relevance(messages[gathered.query].text, index, vectors, gathered.query_vector)
        return dict(zip(indexes, map(float, scores), strict=True))

    def _wanted(self, messages: Sequence[Message]) -> dict[bytes, str]:
        """The texts by key, in the order of the conversation but for the prompt, which is wanted before all others."""
        query = last_user(messages)
        order = [m for i, m in enumerate(messages) if m.role not in INSTRUCTIONS and i != query]
        if query is not None:
            order.append(messages[query])
        wanted: dict[bytes, str] = {}
        for message in order:
            if message.text.strip():
                key = self.library.key(message)
                wanted.pop(key, None)
                wanted[key] = message.text
        return wanted

    def _gathered(
        self,
        messages: Sequence[Message],
        wanted: Mapping[bytes, str],
        before: Mapping[bytes, Vectors],
        found: Mapping[bytes, Vectors],
    ) -> Gathered:
        keys = {i: self.library.key(m) for i, m in enumerate(messages) if m.role not in INSTRUCTIONS}
        return Gathered(
            query=last_user(messages),
            vectors={i: found[key] for i, key in keys.items() if key in found},
            dense=True,
            late=len(wanted) - len(found),
            waited=len(wanted) - len(before),
        )

    def _absent(self, messages: Sequence[Message], dense: bool) -> int:
        return len(self._wanted(messages)) if dense else 0


def by_slot(
    groups: Sequence[Group], scores: Mapping[int, float], vectors: Mapping[int, Vectors]
) -> tuple[Mapping[str, float], Mapping[str, object]]:
    """Relevance and unit vector of each slot: the best of its messages', and the mean of theirs."""
    similarity: dict[str, float] = {}
    unit: dict[str, object] = {}
    single: dict[str, Vectors] = {}  # most slots have one vector, which is one already: they are converted together
    for group in groups:
        if found := [scores[i] for i in group.messages if i in scores]:
            similarity[slot_id(group)] = max(found)
        pieces = [np.atleast_2d(vectors[i]) for i in group.messages if i in vectors]
        if len(pieces) == 1 and len(pieces[0]) == 1:
            single[slot_id(group)] = pieces[0][0]
        elif pieces:
            unit[slot_id(group)] = pooled(np.concatenate(pieces))
    if single:
        unit |= zip(single, np.stack(list(single.values())).astype(np.float32), strict=True)
    return similarity, unit
