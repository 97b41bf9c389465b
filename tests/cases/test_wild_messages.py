"""Histories as clients in the wild send them, through real sockets: what is trimmed stays what a provider takes.

Each stands for a kind that other tests cover by rule; here the shapes come as they are seen, all at once.
"""

import json
from typing import Any

import pytest

from policies.clear_tool_results import ClearToolResults
from tests.cases.shapes import calls, result
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import Message, assistant, system, user, words
from tests.proxy.proxied import Records, Start
from tests.validator import violations, worsened

POLICIES = ("fifo", "priority", "hybrid", "clear_tool_results")
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
LONG = words(120)


RULES = "reserve_output: 0, hold: {wait_s: 0}, pin: {first_user: false}, protect_last: 2, window: 800"
ROUTES = ", ".join(f"{{name: {policy}, match: {{path: /{policy}}}, policy: {policy}}}" for policy in POLICIES)
SETTINGS = f"embeddings: {{backend: none}}\ndefaults: {{{RULES}}}\nroutes: [{ROUTES}]"


def talk(number: int, size: int = 60) -> list[Message]:
    """Turns that give the history its length."""
    return [m for n in range(number) for m in (user(f"q{n} {words(size, n)}"), assistant(f"a{n} {words(size, n + 1)}"))]


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def shuffled(first: int) -> list[Message]:
    return [result(first + k, words(30, first + k)) for k in (3, 0, 4, 1, 2)]


def custom(number: int, text: str) -> list[Message]:
    """A call of a custom tool, whose input is free text, and its result."""
    made = {"id": f"call_{number}", "type": "custom", "custom": {"name": "patch", "input": text}}
    return [{"role": "assistant", "content": None, "tool_calls": [made]}, result(number, words(30, number))]


HISTORIES: dict[str, list[Message]] = {
    "five calls at once, answered out of order": [
        system(),
        *(m for n in range(0, 30, 5) for m in (calls(*range(n, n + 5)), *shuffled(n))),
        user("go on"),
    ],
    "a note of the operator between call and result": [
        system(),
        *talk(8),
        calls(1),
        {"role": "developer", "content": "The tide table was updated."},
        result(1, LONG),
        *talk(6),
        user("now"),
    ],
    "results without any call at the head": [
        result(9, LONG),
        result(8, LONG),
        *talk(10),
        user("now"),
    ],
    "an empty list of calls": [
        system(),
        *(m for n in range(20) for m in (user(words(40, n)), {**assistant(words(40, n)), "tool_calls": []})),
        user("now"),
    ],
    "calls that are null": [
        system(),
        *(m for n in range(20) for m in (user(words(40, n)), {**assistant(words(40, n)), "tool_calls": None})),
        user("now"),
    ],
    "a refusal instead of content": [
        system(),
        *(
            m
            for n in range(20)
            for m in (user(words(60, n)), {"role": "assistant", "content": None, "refusal": words(30, n)})
        ),
        user("now"),
    ],
    "the same words again and again": [system(), *(user("continue " * 30) for _ in range(80)), user("continue")],
    "a room of many voices": [
        system(),
        *({"role": "user", "name": f"guest_{n % 7}", "content": words(40, n)} for n in range(60)),
        user("who said that?"),
    ],
    "instructions all along": [
        system(),
        *(m for n in range(9) for m in (*talk(2), {"role": "developer", "content": f"rule {n}"})),
        user("now"),
    ],
    "old and new ways of calling, mixed": [
        system(),
        *(
            m
            for n in range(8)
            for m in (
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": words(40, n)},
                calls(n),
                result(n, words(40, n)),
            )
        ),
        user("now"),
    ],
    "ids that are numbers": [
        system(),
        *(
            m
            for n in range(12)
            for m in (
                {"role": "assistant", "content": None, "tool_calls": [{"id": n, "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": n, "content": words(60, n)},
            )
        ),
        user("now"),
    ],
    "results that name no call": [
        system(),
        *(m for n in range(10) for m in (calls(n), {"role": "tool", "content": words(60, n)})),
        *talk(5),
        user("now"),
    ],
    "a loop of tools since the only question": [
        system(),
        user("Find the Halcyon."),
        *(m for n in range(40) for m in (calls(n), result(n, words(50, n)))),
    ],
    "an instruction at the very end": [system(), *talk(14), system("Answer in one word.")],
    "instructions and one question": [*(system(words(20, n)) for n in range(80)), user("now")],
    "results in parts, with a picture": [
        system(),
        *(
            m
            for n in range(12)
            for m in (
                calls(n),
                {"role": "tool", "tool_call_id": f"call_{n}", "content": [*parts(words(60, n)), PICTURE]},
            )
        ),
        user("now"),
    ],
    "answers in parts": [
        system(),
        *(
            m
            for n in range(16)
            for m in (
                {"role": "user", "content": parts(words(40, n), words(20, n + 1))},
                {"role": "assistant", "content": [*parts(words(40, n)), {"type": "refusal", "refusal": "no"}]},
            )
        ),
        user("now"),
    ],
    "free text for tools": [system(), *(m for n in range(14) for m in custom(n, "*** patch\n" * 20)), user("now")],
    "nothing but space": [
        system(),
        *(m for n in range(16) for m in (user(" \n\t"), assistant(words(80, n)), user(""), user(words(40, n)))),
        user("now"),
    ],
    "arguments of a whole file": [
        system(),
        *(
            m
            for n in range(4)
            for m in (
                {
                    "role": "assistant",
                    "content": "writing",
                    "tool_calls": [
                        {
                            "id": f"call_{n}",
                            "type": "function",
                            "function": {
                                "name": "write",
                                "arguments": json.dumps({"text": 'a "quoted" \\ line\n' * 80}),
                            },
                        }
                    ],
                },
                result(n, "ok"),
            )
        ),
        user("now"),
    ],
    "speech that is referred to": [
        system(),
        *(
            m
            for n in range(20)
            for m in (user(words(60, n)), {"role": "assistant", "content": None, "audio": {"id": f"audio_{n}"}})
        ),
        user("now"),
    ],
    "an answer begun for the model": [system(), *talk(14), {**assistant("The berth is"), "prefix": True}],
    "thoughts and their signatures": [
        system(),
        *(
            m
            for n in range(12)
            for m in (
                {
                    **calls(n),
                    "reasoning_content": words(40, n),
                    "reasoning_details": [{"type": "reasoning.encrypted", "data": "Zm9v" * 20, "id": f"r{n}"}],
                },
                result(n, words(40, n)),
            )
        ),
        user("now"),
    ],
    "marks for the provider's cache": [
        {"role": "system", "content": [{**parts("You help.")[0], "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        *talk(12),
        {"role": "user", "content": [{**parts(LONG)[0], "cache_control": {"type": "ephemeral"}}]},
        assistant("yes"),
        user("now"),
    ],
    "fields that nobody knows": [
        system(),
        *({**m, "x_trace": {"span": 2**53 + 1}, "weight": 1} for m in talk(14)),
        {**user("now"), "id": "msg_9", "created_at": 1.7e9},
    ],
    "what is no message": [system(), *talk(12), None, 7, "text", ["list"], {}, *talk(2), user("now")],  # type: ignore[list-item]
}


def body(messages: list[Any], **fields: Any) -> bytes:
    return json.dumps({"model": "gpt-4o", "temperature": 1.0, "messages": messages, **fields}).encode()


@pytest.mark.parametrize("history", HISTORIES)
async def test_what_is_sent_is_no_worse_than_what_came(
    start: Start, upstream: FakeUpstream, records: Records, history: str
) -> None:
    """Twice by each policy, so that what was decided is replayed too."""
    messages = HISTORIES[history]
    client = await start(SETTINGS)
    for policy in POLICIES:
        longer = [*messages, assistant("Yes."), user("And then?")]
        for asked in (messages, longer):
            response = await client.post(f"/{policy}/v1/chat/completions", content=body(asked, seed=2**63))
            sent = upstream.last.json
            assert response.status_code == 200
            assert response.headers["x-trimtab-action"] in ("trimmed", "unfit", "pass"), policy
            assert "x-trimtab-faults" not in response.headers
            assert {k: v for k, v in sent.items() if k != "messages"} == {
                "model": "gpt-4o",
                "temperature": 1.0,
                "seed": 2**63,
            }
            shortened = _shortened(asked, sent["messages"])
            assert worsened(asked, sent["messages"], rewritten=shortened) == [], policy
            if not violations(asked):
                assert not violations(sent["messages"]), policy
    assert {record["action"] for record in await records.get(2 * len(POLICIES))} & {"trimmed", "unfit"}


def _shortened(asked: list[Any], sent: list[Any]) -> frozenset[int]:
    """Messages that came shorter, by what is left in their place."""
    marks = ("left out here to fit the context window", ClearToolResults().placeholder)
    whole = [json.dumps(m) for m in sent]
    return frozenset(
        i
        for i, m in enumerate(asked)
        if json.dumps(m) not in whole and any(mark in text for text in whole for mark in marks)
    )
