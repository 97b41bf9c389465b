"""What a trimmed request has to still say: questions with their evidence, and values that later calls use."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.data import Conversation


@dataclass(frozen=True, slots=True)
class Probe:
    """A request, and the facts that it must still contain when it is sent.

    Each fact is a set of messages, by index, of which any one states it. `values` are what the facts say in words, one
    for each or none at all: where a value is still sent, its fact is kept even if no message is whole. `weight` is what
    the probe counts for in a mean: 1 for a question, the number of values for a call.
    """

    id: str
    category: str
    request: dict[str, Any]
    facts: tuple[frozenset[int], ...]
    weight: int
    values: tuple[str, ...] = ()


def probes(conversation: Conversation) -> Iterator[Probe]:
    """The probes of a recorded conversation: its answerable questions, or else the calls that use earlier values.

    `qas`: each question is appended as the last user message. With `evidence_mode` any, one of the messages in
    `evidence` is enough; else all are needed. `deps`: a call in message `at` uses a `value` that stands in `sources`
    alone, so the request that it answers is what came before.
    """
    messages, record = conversation.request["messages"], conversation.record
    for number, question in enumerate(record.get("qas", ())):
        evidence = question.get("evidence")
        if question.get("unanswerable") or not evidence:
            continue
        any_ = question.get("evidence_mode") == "any"
        yield Probe(
            str(question.get("qid", f"{conversation.id}-{number}")),
            str(question.get("category", "question")),
            {**conversation.request, "messages": [*messages, {"role": "user", "content": question["question"]}]},
            (frozenset(evidence),) if any_ else tuple(frozenset({index}) for index in evidence),
            1,
        )
    calls: dict[int, list[dict[str, Any]]] = {}
    for used in record.get("deps", ()):
        calls.setdefault(used["at"], []).append(used)
    for at, uses in sorted(calls.items()):
        yield Probe(
            f"{conversation.id}-{at}",
            conversation.id.split("-")[0],
            {**conversation.request, "messages": messages[:at]},
            tuple(frozenset(used["sources"]) for used in uses),
            len(uses),
            tuple(str(used.get("value", "")) for used in uses),
        )
