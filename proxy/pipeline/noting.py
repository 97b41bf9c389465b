"""The notes of one request: what they cost, the summaries of a cut, and what comes back for the prompt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from policies.types import Kind
from proxy.conversations.ledger import Ledger
from proxy.conversations.notes import Keys, Note, ordered, render
from proxy.conversations.placed import Placed, place
from proxy.guard import Faults
from proxy.pipeline import budget as budgets
from proxy.pipeline.gathering import Gathered, last_user
from proxy.pipeline.intake import Incoming, Reading
from proxy.pipeline.prompt import Prompt, must_alternate
from proxy.pipeline.record import Write
from proxy.recall.extracts import extract
from proxy.recall.library import Library
from proxy.recall.pointing import MARKS, strength
from proxy.recall.recalling import Costs, forgotten, limit, part, recalled, share, taken, wanted
from proxy.route import SummaryKind
from proxy.wire.chat import Message

OLD, NEW = 8, 20  # the most relevant messages that were left out, the newest that were not: which does a prompt mean?
LEAST = 64  # tokens: a smaller note is no reason for a cut
FRAME = 64  # tokens: about what a summary's heading, marks and labels take beside its own words


@dataclass(frozen=True, slots=True)
class Noting:
    """Makes the notes of one request. Nothing here raises: a note that fails is a fault, and is left out.

    `count` gives the tokens of a message.
    """

    incoming: Incoming
    reading: Reading
    keys: Keys
    library: Library
    faults: Faults
    count: Callable[[Message], int]

    @property
    def share(self) -> int:
        """Tokens that all live recall notes may take together."""
        return share(self.incoming.route, self.incoming.trimmer, self.reading.budget.tokens)

    @property
    def cached(self) -> bool:
        """Whether a provider caches anything of this conversation."""
        return budgets.cached(self.incoming.route, self.reading.budget.tokens)

    def reserve(self, ledger: Ledger, scores: Callable[[], Mapping[int, float]], *, last: bool = False) -> int:
        """Tokens that a cut leaves for notes.

        All that they may take, so that they never cause the next cut; where no cache is at stake, what this prompt
        asks for, unless its note is the `last`.
        """
        if not wanted(self.messages):
            return 0
        if self.cached or last or not self.share:
            return self.share
        with self.faults.guard("recall"):
            return part(0, self.share, self.strength(ledger, scores()), whole=True)
        return self.share

    @property
    def summary_tokens(self) -> int:
        """Tokens that one summary may cost; 0 where none are to be written."""
        summaries = self.incoming.route.summaries
        return 0 if summaries.kind is SummaryKind.OFF else summaries.max_tokens + FRAME

    @property
    def merge(self) -> bool:
        """Whether notes are the first words of a user's message, rather than messages of their own."""
        return self.incoming.route.merge_notes or must_alternate(
            self.incoming.route, self.messages, self.reading.groups
        )

    @property
    def messages(self) -> Sequence[Message]:
        """The client's messages."""
        return self.reading.chat.messages

    def recalls(self, ledger: Ledger) -> bool:
        """Whether something may come back for this request's prompt."""
        return self.share > 0 and forgotten(ledger) and wanted(self.messages)

    def cost(self, prompt: Prompt, note: Note) -> int:
        """Tokens that a note would add to a prompt."""
        text = render(note, self.messages, self.keys)
        if text is None:
            return 0
        there = [(p.note, p.text) for p in prompt.notes if note.merge and p.note.merge and p.note.before == note.before]
        placed: list[Placed] = list(place([*there, (note, text)], prompt.messages, self.count))
        return placed[-1].tokens

    def writer(self, prompt: Prompt, gathered: Gathered) -> Write | None:
        """Makes extractive summaries; None where the route wants none."""
        if self.incoming.route.summaries.kind is SummaryKind.OFF:
            return None

        def written(note: Note, room: int, before: Sequence[Note]) -> Note | None:
            with self.faults.guard("summary"):
                return extract(
                    note,
                    self.messages,
                    room,
                    library=self.library,
                    count=self.reading.counter.content,
                    cost=partial(self.cost, prompt),
                    vectors=gathered.vectors,
                    before=before,
                )
            return None

        return written

    def recall(
        self, ledger: Ledger, prompt: Prompt, scores: Mapping[int, float], most: int, *, last: bool = False
    ) -> Ledger:
        """The ledger with one more recall note, within a prompt of `most` tokens; the same where there is none.

        It is the `last` where nothing follows on this request.
        """
        route = self.incoming.route
        with self.faults.guard("recall"):
            plain = 1.0 if last else self.strength(ledger, scores)
            note = recalled(
                ledger,
                self.messages,
                self.reading.groups,
                scores,
                limit(prompt, self.share, most, plain=plain, last=last, whole=not self.cached),
                exclude_tools=route.recall_exclude_tools,
                merge=self.merge,
                library=self.library,
                costs=Costs(text=self.reading.counter.content, note=partial(self.cost, prompt)),
            )
            if note is not None and all(each.id != note.id for each in ledger.notes):
                return replace(ledger, notes=ordered((*ledger.notes, note)))
        return ledger

    def due(self, ledger: Ledger, prompt: Prompt, scores: Callable[[], Mapping[int, float]], room: int) -> int:
        """Tokens of the note that the prompt asks for, where they are more than `room`; else 0.

        Where no cache is at stake, the cut that would make room for it takes the live notes, so it may have their part.
        """
        left = self.share - taken(prompt)
        if not self.cached:
            room, left = min(room, left), 2 * self.share
        if left <= 2 * max(room, 0):  # the most that it can ask for
            return 0
        with self.faults.guard("recall"):
            plain, live = self.strength(ledger, scores()), self.share - left
            asked = part(live, self.share, plain) if self.cached else part(0, self.share, plain, whole=True)
            return asked if asked > max(room, LEAST) else 0
        return 0

    def pays(self, asked: int, stays: int, target: int, room: int) -> bool:
        """Whether a cut would make room for the note `asked` for, where pinned and protected slots are `stays` tokens.

        There is `room` without it. Where no cache is at stake, a larger note will do, if not all that is asked for.
        """
        if self.cached:
            return stays + asked <= target
        return min(asked, self.threshold - stays) > max(room, LEAST)

    @property
    def threshold(self) -> int:
        """The most tokens of a prompt that is not cut."""
        return int(self.incoming.route.thresholds.evict * self.reading.budget.tokens) - 1

    def strength(self, ledger: Ledger, scores: Mapping[int, float]) -> float:
        """How plainly the prompt means something that was left out."""
        query = last_user(self.messages)
        if query is None:
            return 0.0
        passages = {i: self.library.passage(self.messages[i]) for i in scores}
        gone = {*ledger.drops, *ledger.clears, *ledger.truncations} & scores.keys()
        if not gone:  # before the first cut, which leaves about the newest
            gone = set(sorted(scores)[:-OLD])
        left = sorted(scores.keys() - gone)
        ranked = (i for i in sorted(gone, key=lambda i: -scores[i]) if not self._asking(i))
        old = [*islice(ranked, OLD)]
        new = [*islice((i for i in reversed(left) if not self._asking(i)), NEW)]
        gap = max((scores[i] for i in old), default=0.0) - max((scores[i] for i in left), default=0.0)
        return strength(
            self.messages[query].text,
            [passages[i] for i in old],
            [passages[i] for i in new],
            list(passages.values()),
            gap,
        )

    def _asking(self, index: int) -> bool:
        """Whether a message is a question: it has the words, and no answer."""
        return self.messages[index].text.rstrip().endswith(MARKS)

    def written(self, ledger: Ledger) -> Mapping[tuple[int, ...], str]:
        """The texts of the summaries that a model has written before, by the messages that they cover."""
        opened = self.keys.open or bytes
        found = ((note.covers, opened(note.sealed)) for note in ledger.notes if note.sealed is not None)
        return {covers: text.decode("utf-8", "replace") for covers, text in found if text is not None}

    def sealed(self, ledger: Ledger, texts: Mapping[Note, bytes], prompt: Prompt, full: Prompt) -> Ledger:
        """The ledger with these texts for its summaries, where they cost the `prompt` less than what they cover."""
        notes = []
        for note in ledger.notes:
            if (sealed := texts.get(note)) is not None:
                written = replace(note, quotes=(), sealed=sealed)
                room = sum(full.tokens[i] for i in note.covers)
                note = written if 0 < self.cost(prompt, written) < room else note
            notes.append(note)
        return replace(ledger, notes=tuple(notes))

    def drafts(self, before: Ledger, after: Ledger) -> tuple[Note, ...]:
        """The summaries that a cut made, for a model to write better ones."""
        return tuple(n for n in after.notes if n.kind is Kind.SUMMARY and n not in before.notes and n.sealed is None)
