"""Slices of recorded conversations, with the questions whose evidence lies inside, and what of it has to survive."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.data import Conversation
from bench.facts import Probe

MESSAGES = 40
CONSTRAINTS = frozenset({"booking_slot", "item_option", "drink", "user_fact"})
"""Categories of questions whose evidence, where a user said it, is a constraint that the user set."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a conversation as one of its own; `intents` are the probes that its questions make.

    The facts of a probe are the first user message, each user message that set a constraint, and the evidence for the
    question that is asked at the end.
    """

    conversation: Conversation
    intents: tuple[Probe, ...]


def slices(conversation: Conversation, messages: int = MESSAGES) -> Iterator[Slice]:
    """The slices of so many messages that a conversation has, one after the other; instructions begin each of them.

    Tool results without their call, and calls without all of their results, are left out at the edges. So are tool
    schemas: they are the conversation's, not the slice's.
    """
    said = conversation.request["messages"]
    system = [message for message in said[:1] if message["role"] in ("system", "developer")]
    body = range(len(system), len(said))
    for number, start in enumerate(body[: len(body) // messages * messages : messages]):
        kept = _whole(said, start, start + messages)
        yield _slice(conversation, number, system, kept)


def _whole(said: list[dict[str, Any]], start: int, end: int) -> range:
    """The messages from `start` to `end` without groups that are cut in half."""
    while start < end and said[start]["role"] in ("tool", "function"):
        start += 1
    last = end
    while last > start and said[last - 1]["role"] in ("tool", "function"):
        last -= 1
    calls = len(said[last - 1].get("tool_calls") or ()) + bool(said[last - 1].get("function_call"))
    return range(start, end if calls <= end - last else last - 1)


def _slice(conversation: Conversation, number: int, system: list[dict[str, Any]], kept: range) -> Slice:
    said = conversation.request["messages"]
    messages = [*system, *(said[i] for i in kept)]
    place = {old: new for new, old in enumerate(kept, len(system))}
    request = {**{key: value for key, value in conversation.request.items() if key != "tools"}, "messages": messages}
    asked: list[tuple[dict[str, Any], frozenset[int]]] = []
    for question in conversation.record.get("qas", ()):
        evidence = question.get("evidence") or ()
        if evidence and all(index in place for index in evidence) and not question.get("unanswerable"):
            asked.append((question, frozenset(place[index] for index in evidence)))
    constraints = {
        index
        for question, evidence in asked
        if question.get("category") in CONSTRAINTS
        for index in evidence
        if messages[index]["role"] == "user"
    }
    first = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
    common = sorted(constraints | ({first} if first is not None else set()))
    name = f"{conversation.id}-{number}"
    record = {"id": name, "qas": [{**question, "evidence": sorted(evidence)} for question, evidence in asked]}
    intents = []
    for index, (question, evidence) in enumerate(asked):
        own = (evidence,) if question.get("evidence_mode") == "any" else tuple(frozenset({e}) for e in sorted(evidence))
        facts = dict.fromkeys([*(frozenset({each}) for each in common), *own])
        intents.append(
            Probe(
                str(question.get("qid", f"{name}-{index}")),
                str(question.get("category", "question")),
                {**request, "messages": [*messages, {"role": "user", "content": question["question"]}]},
                tuple(facts),
                1,
            )
        )
    return Slice(Conversation(name, request, record), tuple(intents))
