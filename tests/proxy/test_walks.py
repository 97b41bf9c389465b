"""Clients that do as they please with their history: whatever they send is valid, fits, and has its own past."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import Message, system, user
from tests.proxy.proxied import Records, Start
from tests.proxy.talks import Sent, Talk, answering, dumped, size
from tests.validator import worsened

WINDOW = 900
STEPS = 35
TOOLS: list[Any] = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
WORDS = ("tide", "berth", "crane", "pilot", "cargo", "buoy", "anchor", "ledger", "quay", "signal", "manifest", "tug")


def settings(policy: str) -> str:
    return (
        f"embeddings: {{backend: none}}\ndefaults: {{window: {WINDOW}, reserve_output: 0, policy: {policy}, "
        "hold: {wait_s: 0.2}}"
    )


@dataclass
class Walk:
    """One client's way through its conversations; `past` are its requests, None for what was sent with pins."""

    talk: Talk
    records: Records
    chance: random.Random
    past: list[tuple[list[Message], Sent | None]] = field(default_factory=list)
    cuts: int = 0
    grown: int = 0

    def text(self) -> str:
        count = self.chance.choice((3, 15, 40, 120))
        return f"{self.chance.random():.9f} " + " ".join(self.chance.choices(WORDS, k=count))

    def next(self, messages: list[Message]) -> list[Message]:
        """What may follow an answer: results of what it calls, or a new question."""
        calls = messages[-1].get("tool_calls") or ()
        results = [{"role": "tool", "tool_call_id": call["id"], "content": self.text()} for call in calls]
        return [*messages, *(results or [user(self.text())])]

    def history(self) -> list[Message]:
        """The conversation as it is, or as its client has changed it."""
        messages = list(self.talk.messages)
        users = [i for i, message in enumerate(messages) if message["role"] == "user"]
        at = self.chance.choice(users)
        match self.chance.choices(("on", "edit", "rewrite", "compact", "back"), (8, 1, 1, 1, 1))[0]:
            case "edit":
                return [*messages[:at], user(self.text())]
            case "rewrite":
                return self.next([*messages[:at], user(self.text()), *messages[at + 1 :]])
            case "compact":
                return self.next([messages[0], user(f"So far: {self.text()}"), *messages[max(at, 1) :]])
            case "back" if self.past:
                return [*self.chance.choice(self.past)[0], {"role": "assistant", "content": "Hm."}, user(self.text())]
        return self.next(messages)

    async def step(self) -> None:
        messages = self.history()
        headers = {}
        if pinned := self.chance.random() < 0.1:
            count = self.chance.choice((1, 3, len(messages)))
            headers["x-trimtab-pin"] = ",".join(map(str, self.chance.sample(range(len(messages)), count)))
        self.talk.messages = list(messages)
        sent = await self.talk.send(**headers)
        await self.judge(messages, sent, pinned=pinned)
        self.past.append((messages, None if pinned else sent))

    async def siblings(self) -> None:
        """Several answers to one message at once; one of them goes on."""
        messages = self.next(list(self.talk.messages))
        talks = [Talk(self.talk.client, self.talk.upstream, list(messages), self.talk.fields) for _ in range(3)]
        found = await asyncio.gather(*(talk.send() for talk in talks))
        assert len({sent.raw for sent in found}) == 1, "the first decides for all"
        await self.judge(messages, found[0], pinned=False)
        self.past.append((messages, found[0]))
        self.talk = self.chance.choice(talks)

    async def judge(self, messages: list[Message], sent: Sent, *, pinned: bool) -> None:
        record = await self.record(sent)
        headers = sent.response.headers
        assert worsened(messages, sent.messages, rewritten=frozenset(range(len(messages)))) == []
        assert str(sent.messages[-1].get("content")).endswith(str(messages[-1].get("content")))
        assert record["faults"] == []
        if (after := headers.get("x-trimtab-tokens-after")) is not None:
            assert int(after) == size(sent.raw, **self.talk.fields)
            assert int(after) <= WINDOW or sent.action == "unfit"
        if record["trigger"] is not None:
            self.cuts += 1
        elif not pinned and (before := self.before(messages)) is not None:
            self.grown += 1
            assert sent.raw[: len(before.raw)] == before.raw, "between cuts not a byte of what was sent changes"
        if sent.action == "pass":
            assert sent.raw == dumped(*messages)

    def before(self, messages: list[Message]) -> Sent | None:
        """The latest of the longest requests that this one goes on from; None where that had pins."""
        found = [(len(m), n, sent) for n, (m, sent) in enumerate(self.past) if messages[: len(m)] == m]
        return max(found, key=lambda each: each[:2])[2] if found else None

    async def record(self, sent: Sent) -> dict[str, Any]:
        count = len(self.talk.upstream.exchanges)
        return next(each for each in await self.records.get(count) if each["audit_id"] == sent.audit_id)


@pytest.mark.parametrize("tools", [False, True], ids=["dialogue", "agent"])
@pytest.mark.parametrize("policy", ["priority", "rwr", "hybrid", "clear_tool_results"])
async def test_whatever_clients_do_to_their_history_each_finds_its_own_past(
    start: Start, upstream: FakeUpstream, records: Records, policy: str, tools: bool
) -> None:
    answering(upstream)
    client = await start(settings(policy))
    chance = random.Random(json.dumps([policy, tools]))
    fields = {"tools": TOOLS} if tools else {}
    walk = Walk(Talk(client, upstream, [system(), user("Help me through the day.")], fields), records, chance)
    walk.past.append((list(walk.talk.messages), await walk.talk.send()))

    for _ in range(STEPS):
        await (walk.siblings() if chance.random() < 0.15 else walk.step())

    assert walk.cuts > 1
    assert walk.grown > 10
