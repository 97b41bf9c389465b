"""One request trimmed without a network, with what must hold of every trimmed request already asserted."""

import json
from dataclasses import dataclass
from typing import Any

from proxy import wire
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Action, Outcome
from proxy.route import Route
from proxy.wire.grouping import alternates, begins_with_user
from tests.proxy.dialogues import Message, body
from tests.validator import worsened


@dataclass(frozen=True)
class Trimmed:
    """What went in, what came out, and what the audit record says of it."""

    before: list[Message]
    content: bytes
    outcome: Outcome

    @property
    def after(self) -> list[Message]:
        messages: list[Message] = json.loads(self.outcome.body)["messages"]
        return messages

    @property
    def raw(self) -> list[bytes]:
        chat = wire.parse(self.outcome.body)
        return [chat.raw(index) for index in range(len(chat.messages))]

    @property
    def record(self) -> dict[str, Any]:
        return self.outcome.record()

    def evicted(self) -> set[int]:
        """Indexes of the messages that left."""
        return self._touched("evict", "summarize")

    def shortened(self) -> set[int]:
        """Indexes of the messages that stayed with another content; never an assistant's."""
        client = wire.parse(self.content)
        touched = {i for i in self._touched("shrink") if self.before[i]["role"] != "assistant"}
        sent = set(self.raw)
        return {i for i in touched if client.raw(i) not in sent}

    def hosts(self) -> set[int]:
        """Indexes of user messages that begin with a note now."""
        if not self._touched("recall", "summarize"):
            return set()
        client, changed = wire.parse(self.content), self.evicted() | self.shortened()
        users = (i for i, message in enumerate(self.before) if message["role"] == "user" and i not in changed)
        sent = set(self.raw)
        return {i for i in users if client.raw(i) not in sent}

    def _touched(self, *actions: str) -> set[int]:
        return {i for row in self.record["slots"] if row["action"] in actions for i in row["messages"]}


def trim(messages: list[Message], route: Route, *, pins: tuple[int, ...] = (), **fields: Any) -> Trimmed:
    """Trim a request and hold the result against every promise."""
    return trim_bytes(body(messages, **fields), route, pins=pins)


def trim_bytes(content: bytes, route: Route, *, pins: tuple[int, ...] = ()) -> Trimmed:
    """As `trim`, for a body as bytes."""
    found = settled(content, route, pins=pins)
    promises(found)
    return found


def settled(content: bytes, route: Route, *, pins: tuple[int, ...] = ()) -> Trimmed:
    """The outcome of a body, whatever it is."""
    incoming = Incoming(route=route, body=content, pins=pins)
    outcome = Pipeline(lambda _, __: route.window).settle(incoming)
    return Trimmed(json.loads(content)["messages"], content, outcome)


def promises(found: Trimmed) -> None:
    """What holds whatever the messages, the policy and the budget are."""
    outcome = found.outcome
    assert outcome.faults == []
    if not outcome.changed:
        assert outcome.body is found.content, "what was not trimmed leaves as it came"
        return
    client, ours = wire.parse(found.content), wire.parse(outcome.body)
    hosts = found.hosts()
    assert worsened(found.before, found.after, rewritten=frozenset(found.shortened() | hosts)) == []
    for host in hosts:
        assert any(client.messages[host].text in message.text for message in ours.messages), "its own words are whole"
    own = [client.raw(index) for index in range(len(client.messages))]
    changed = found.evicted() | found.shortened() | hosts
    kept = [raw for i, raw in enumerate(own) if i not in changed]
    known = set(own)
    assert [raw for raw in found.raw if raw in known] == kept, "kept messages are the client's own bytes, in order"
    assert {name: ours.field(name) for name in ours.fields if name != "messages"} == {
        name: client.field(name) for name in client.fields if name != "messages"
    }
    assert outcome.tokens_after is not None
    assert outcome.tokens_before is not None
    assert outcome.tokens_after < outcome.tokens_before
    if outcome.budget is not None and outcome.action is not Action.UNFIT:
        assert outcome.tokens_after <= outcome.budget.tokens
    if alternates(client.messages):
        assert alternates(ours.messages)
    if begins_with_user(client.messages):
        assert begins_with_user(ours.messages)
    if client.messages[-1].role in ("user", "assistant") and len(own) - 1 not in hosts:
        assert ours.messages[-1].digest == client.messages[-1].digest, "the last message stays last"
