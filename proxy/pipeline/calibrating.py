"""Counting as an upstream's own usage has taught it, for models whose tokenizer nobody knows."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.pipeline.intake import Reading
from proxy.pipeline.prompt import Prompt
from proxy.tokens import Cache, counter, counts
from proxy.tokens.counts import Counts
from proxy.upstream.lasting import Lasting
from proxy.upstream.learned import Key
from proxy.wire.chat import Message

Teach = Callable[[int], bool]
"""Takes the prompt tokens that the upstream counted; True if it can have read only a part of what was sent."""


class Calibrating:
    """The calibrations of a worker, and what its counter knows of messages already."""

    def __init__(self, lasting: Lasting, cache: Cache) -> None:
        self._lasting = lasting
        self._calibrations = lasting.calibrations
        self._cache = cache

    async def reading(self, reading: Reading, key: Key, chain: Sequence[bytes]) -> Reading:
        """The same reading with a counter that estimates as this key's upstream has been seen to count."""
        if not reading.counter.estimated:
            return reading
        answers = (digest for digest, m in zip(chain, reading.chat.messages, strict=True) if m.role == "assistant")
        await self._lasting.recall(key, chain, next(answers, None))
        known = self._calibrations.get(key, reading.counter.ratios)
        if not known.seen:
            return reading
        made = self._made(reading, reading.chat.messages)
        ratios = known.scaled(made, self._calibrations.past(key, chain))
        return replace(reading, counter=reading.counter.with_ratios(ratios))

    def teach(self, reading: Reading, key: Key, chain: Sequence[bytes], sent: Prompt) -> Teach | None:
        """What learns from the usage of this prompt, None where counting is exact and has nothing to learn."""
        if not reading.counter.estimated:
            return None
        prior = counter(key.model or None).ratios
        past = self._calibrations.past(key, chain)
        made = self._made(reading, [message for message in sent.messages if message is not None])
        notes = sum(placed.tokens for placed in sent.notes)
        made = counts.total((made, Counts(latin=notes, messages=len(sent.notes))))

        def learn(actual: int) -> bool:
            cut = self._calibrations.observe(key, prior, made, actual, digest=chain[-1], past=past)
            if not cut:
                self._lasting.write(key, chain[-1])
            return cut

        return learn

    def _made(self, reading: Reading, messages: Sequence[Message]) -> Counts:
        own = reading.counter
        self._cache.messages(own, messages)  # measures what was not measured before
        measures = (self._cache.get((own.key, message.digest)) for message in messages)
        found = (
            counts.of_measure(measure if measure is not None else own.measure(message))
            for measure, message in zip(measures, messages, strict=True)
        )
        return counts.total((counts.of_settings(own, reading.chat.settings), *found))
