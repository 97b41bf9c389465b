"""The conversation that is played: what is asked, and what is answered where the answer is known beforehand."""

from dataclasses import dataclass
from functools import cached_property
from importlib import resources

import yaml

from proxy.recall.sentences import spans


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says; without an `answer`, something that was said long before is asked for."""

    user: str
    answer: str | None


@dataclass(frozen=True)
class Talk:
    """A conversation, from its instructions on."""

    system: str
    turns: tuple[Turn, ...]

    @cached_property
    def answers(self) -> dict[str, str]:
        """The answers by what they answer."""
        return {turn.user: turn.answer for turn in self.turns if turn.answer is not None}

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What is told in it, without the questions."""
        texts = [text for turn in self.turns for text in (turn.user, turn.answer) if text is not None]
        told = (text[start:end] for text in texts for start, end in spans(text))
        return tuple(dict.fromkeys(sentence for sentence in told if not sentence.endswith("?")))


def load() -> Talk:
    """The conversation that comes with the package."""
    told = yaml.safe_load(resources.files("proxy.demo").joinpath("talk.yaml").read_text("utf-8"))
    return Talk(told["system"], tuple(Turn(each["user"], each.get("answer")) for each in told["turns"]))
