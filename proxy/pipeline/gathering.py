"""What a decision needs to know of the messages: vectors and their relevance to the prompt, within a time limit."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile

import numpy as np

from policies.relevance import Index, Vectors, pooled, relevance
from proxy.embeddings import Embeddings
from proxy.pipeline.aside import Aside
from proxy.pipeline.prompt import slot_id
from proxy.recall.library import Library
from proxy.recall.ratings import Ratings
from proxy.route import Ratings as RatingSettings
from proxy.wire.chat import Message
from proxy.wire.grouping import INSTRUCTIONS, Group

READ_AT_ONCE = 32  # messages, before it is seen whether they are still wanted
NEW = 2  # messages that a turn adds: an answer and a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The vectors that were there in time, by message; `query` is the message with the current prompt.

    `late` counts the texts that have no vector yet, and `waited` those that were not there beforehand. `dense`:
    vectors were wanted at all. `ratings` are a model's, by message, where they were wanted, and `unrated` counts the
    messages without one.
    """

    query: int | None = None
    vectors: Mapping[int, Vectors] = field(default_factory=dict)
    dense: bool = False
    late: int = 0
    waited: int = 0
    ratings: Mapping[int, float] | None = None
    unrated: int = 0

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
        rated = {} if self.ratings is None else {"rated": len(self.ratings), "unrated": self.unrated}
        return {
            "vectors": len(self.vectors),
            "waited": self.waited,
            "late": self.late,
            **rated,
            "without": self.without,
        }

    @property
    def without(self) -> str | None:
        """What was done without: all vectors or ratings, or some."""
        found = []
        if self.dense and self.late:
            found.append("some vectors" if self.vectors else "vectors")
        if self.unrated:
            found.append("some ratings" if self.ratings else "ratings")
        return ", ".join(found) or None


def last_user(messages: Sequence[Message]) -> int | None:
    """The index of the current prompt; None where there is none."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), None)


class Gatherer:
    """Gathers for one decision at a time; `wait_s` is the most that a request waits for vectors, in seconds.

    What is long to read is read `aside`.
    """

    def __init__(
        self,
        embeddings: Embeddings | None,
        library: Library,
        *,
        wait_s: float = 0.15,
        aside: Aside | None = None,
        ratings: Ratings | None = None,
    ) -> None:
        self._aside = aside or Aside()
        self._ratings = ratings
        self._embeddings = embeddings
        self.library = library
        self._wait_s = wait_s

    def rated(self, gathered: Gathered, messages: Sequence[Message], settings: RatingSettings) -> Gathered:
        """What was gathered with the ratings that are there now."""
        found = {} if self._ratings is None else self._ratings.known(settings, messages)
        query = gathered.query
        wanted = sum(1 for i, m in enumerate(messages) if m.role not in INSTRUCTIONS and i != query and m.text)
        return replace(gathered, ratings=found, unrated=wanted - len(found))

    def rate(self, messages: Sequence[Message], settings: RatingSettings) -> None:
        """Have messages rated that were not, some time later."""
        if self._ratings is not None:
            self._ratings.prepare(settings, messages)

    async def gather(
        self,
        messages: Sequence[Message],
        *,
        dense: bool,
        only: Collection[int] | None = None,
        spent_s: float = 0.0,
        meanwhile: Callable[[], object] | None = None,
    ) -> Gathered:
        """What is there within the time limit, of which `spent_s` are over; to be awaited on the event loop.

        Vectors are of the prompt and of all other messages, or of those in `only`. Where there are some to wait for,
        `meanwhile` is done, and the words of the messages are read.
        """
        if not dense or self._embeddings is None:
            return Gathered(query=last_user(messages), dense=dense, late=self._absent(messages, dense))
        keys = self._keys(messages)
        wanted = _wanted(messages, keys, only)
        there = self._embeddings.known(wanted)
        if missing := _without(wanted, there):
            # Others make the vectors: meanwhile the words are read, of what follows the last message that was read.
            new = [*takewhile(lambda message: not self.library.has_read(message), reversed(messages))]
            size = sum(message.size for message in new)
            waiting = self._embeddings.gather(missing, max(0.0, self._wait_s - spent_s))
            made, _ = await asyncio.gather(waiting, self._aside(size, partial(self.read, new, meanwhile)))
            there = {**there, **made}
        return _gathered(messages, keys, wanted, there, len(missing))

    def wait(self, messages: Sequence[Message], *, dense: bool) -> Gathered:
        """The same, of all messages, for a thread that may block."""
        if not dense or self._embeddings is None:
            return Gathered(query=last_user(messages), dense=dense, late=self._absent(messages, dense))
        keys = self._keys(messages)
        wanted = _wanted(messages, keys)
        there = self._embeddings.known(wanted)
        if missing := _without(wanted, there):
            there = {**there, **self._embeddings.vectors(missing, self._wait_s)}
        return _gathered(messages, keys, wanted, there, len(missing))

    def there(self, messages: Sequence[Message]) -> Gathered:
        """What is there now."""
        if self._embeddings is None:
            return Gathered(query=last_user(messages))
        keys = self._keys(messages)
        wanted = _wanted(messages, keys)
        return _gathered(messages, keys, wanted, self._embeddings.known(wanted), 0)

    def read(self, messages: Sequence[Message], then: Callable[[], object] | None = None) -> None:
        """Find the terms of messages that were not read before; `then` do something else."""
        for message in messages:
            if message.role not in INSTRUCTIONS:
                self.library.passage(message)
        if then is not None:
            then()

    def read_closely(self, messages: Sequence[Message], wanted: Callable[[], bool]) -> None:
        """Find their sentences too, which summaries and notes are made of, as long as it is `wanted`."""
        self.read(messages)
        for start in range(0, len(messages), READ_AT_ONCE):
            if not wanted():
                return
            for message in messages[start : start + READ_AT_ONCE]:
                self.library.sentences(message)

    def prepare(self, messages: Sequence[Message], then: Callable[[], None] = lambda: None) -> None:
        """Have the vectors made that the next decision will need, the newest first, whenever there is time.

        `then` is called, on some thread, once there is nothing left to be made.
        """
        if self._embeddings is None:
            then()
        else:
            self._embeddings.prepare(_wanted(messages, self._keys(messages)), then)

    def relevances(self, messages: Sequence[Message], gathered: Gathered) -> Mapping[int, float]:
        """The relevance of each message to the prompt, 0..1, but for the prompt itself and instructions."""
        if gathered.query is None:
            return {}
        indexes = [i for i, m in enumerate(messages) if i != gathered.query and m.role not in INSTRUCTIONS]
        index = Index(tuple(self.library.passage(messages[i]) for i in indexes))
        vectors = [gathered.vectors.get(i) for i in indexes]
        scores = relevance(messages[gathered.query].text, index, vectors, gathered.query_vector)
        return dict(zip(indexes, map(float, scores), strict=True))

    def _absent(self, messages: Sequence[Message], dense: bool) -> int:
        return len(_wanted(messages, self._keys(messages))) if dense else 0

    def _keys(self, messages: Sequence[Message]) -> list[bytes | None]:
        """What the vectors of each message are kept under; None for instructions."""
        key = self.library.key
        return [None if m.role in INSTRUCTIONS else key(m) for m in messages]


def _wanted(
    messages: Sequence[Message], keys: Sequence[bytes | None], only: Collection[int] | None = None
) -> dict[bytes, str]:
    """The texts by key, in the order of the conversation but for the prompt, which is wanted before all others."""
    query = last_user(messages)
    wanted: dict[bytes, str] = {}
    places = (i for i in range(len(messages)) if i != query and (only is None or i in only))
    for i in places if query is None else (*places, query):
        key = keys[i]
        if key is not None and (text := messages[i].text) and not text.isspace():
            wanted.pop(key, None)
            wanted[key] = text
    return wanted


def _gathered(
    messages: Sequence[Message],
    keys: Sequence[bytes | None],
    wanted: Mapping[bytes, str],
    found: Mapping[bytes, Vectors],
    waited: int,
) -> Gathered:
    return Gathered(
        query=last_user(messages),
        vectors={i: found[key] for i, key in enumerate(keys) if key is not None and key in found},
        dense=True,
        late=len(wanted) - len(found),
        waited=waited,
    )


def _without(wanted: Mapping[bytes, str], there: Collection[bytes]) -> dict[bytes, str]:
    if len(there) == len(wanted):
        return {}
    return {key: text for key, text in wanted.items() if key not in there}


def similarities(groups: Sequence[Group], scores: Mapping[int, float]) -> Mapping[str, float]:
    """The relevance of each slot: the best of its messages'."""
    found: dict[str, float] = {}
    for group in groups:
        indexes = group.messages
        if len(indexes) == 1:
            if (score := scores.get(indexes[0])) is not None:
                found[slot_id(group)] = score
        elif own := [scores[i] for i in indexes if i in scores]:
            found[slot_id(group)] = max(own)
    return found


class Units(Mapping[str, object]):
    """The unit vector of each slot: the mean of its messages' vectors; worked out once one of them is asked for."""

    def __init__(self, groups: Sequence[Group], vectors: Mapping[int, Vectors]) -> None:
        self._groups = groups
        self._vectors = vectors

    def __getitem__(self, slot: str) -> object:
        return self._made[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, slot: object) -> bool:
        return slot in self._made

    @cached_property
    def _made(self) -> Mapping[str, object]:
        vectors = self._vectors
        made: dict[str, object] = {}
        single: dict[str, Vectors] = {}  # most slots have one vector, which is one already: they are converted together
        for group in self._groups:
            pieces = [np.atleast_2d(vectors[i]) for i in group.messages if i in vectors]
            if len(pieces) == 1 and len(pieces[0]) == 1:
                single[slot_id(group)] = pieces[0]
            elif pieces:
                made[slot_id(group)] = pooled(np.concatenate(pieces))
        if single:
            made |= zip(single, np.concatenate(list(single.values())).astype(np.float32), strict=True)
        return made
