import asyncio
import json
from typing import Any

import pytest

from bench.asking import asked, route, way
from bench.data import Conversation
from bench.facts import probes
from proxy.errors import ConfigError
from proxy.route import Mode

FACT = "The spare key is under the blue flower pot behind the shed."
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Good evening!"},
    {"role": "assistant", "content": "Good evening to you."},
    *(
        {"role": role, "content": f"Chapter {i} of the novel was longer than the one before it, said reader {i}."}
        for i in range(8)
        for role in ("user", "assistant")
    ),
    {"role": "user", "content": FACT},
    {"role": "assistant", "content": "Noted."},
    *(
        {"role": role, "content": f"Verse {i} of the poem was shorter than the one after it, said listener {i}."}
        for i in range(40)
        for role in ("user", "assistant")
    ),
]
QAS = [{"question": "Where is the spare key?", "evidence": [18]}]
TALK = Conversation("talk", {"model": "gpt-4o", "messages": CHAT}, {"qas": QAS})


@pytest.mark.parametrize(
    ("name", "settings", "kept"),
    [
        pytest.param("identity", "", True, id="all is sent"),
        pytest.param("newest", "", False, id="the newest, whatever the settings say of recall"),
        pytest.param("tail", "recall: {budget: 0}", False, id="the newest alone"),
        pytest.param("tail", "recall: {budget: 0.3}", True, id="the newest, and what comes back"),
        pytest.param("hybrid", "recall: {budget: 0.3}", True, id="a policy"),
        pytest.param("oracle", "recall: {budget: 0}", True, id="what will be asked for"),
    ],
)
def test_what_a_question_at_the_end_still_finds(name: str, settings: str, kept: bool) -> None:
    wanted = list(probes(TALK))

    found = asyncio.run(asked(TALK, wanted, way(route(name, settings), wanted), 900))
    (sent,) = found.sent

    assert (18 in sent.kept) is kept
    assert name == "identity" or sent.tokens <= 900
    assert len(found.seconds) == sum(message["role"] == "user" for message in CHAT) + len(wanted)
    assert min(found.seconds) > 0
    assert json.loads(sent.body)["messages"][-1]["content"] == QAS[0]["question"]


def test_identity_decides_nothing() -> None:
    assert route("identity", "").mode is Mode.OFF


@pytest.mark.parametrize(("name", "settings"), [("bogus", ""), ("hybrid", "bogus: 1")])
def test_what_is_not_there_is_named(name: str, settings: str) -> None:
    with pytest.raises(ConfigError, match="bogus"):
        route(name, settings)


def test_an_oracle_keeps_a_whole_group_of_which_one_result_will_be_asked_for() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
    group = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", **call}, {"id": "b", **call}]},
        {"role": "tool", "tool_call_id": "a", "content": "The shed is locked."},
        {"role": "tool", "tool_call_id": "b", "content": FACT},
    ]
    asked_for = Conversation(
        "tools",
        {"model": "gpt-4o", "messages": [*CHAT[:2], *group, *CHAT[20:]]},
        {"qas": [{**QAS[0], "evidence": [4]}]},
    )
    wanted = list(probes(asked_for))

    found = asyncio.run(asked(asked_for, wanted, way(route("oracle", "recall: {budget: 0}"), wanted), 900))

    assert {2, 3, 4} <= found.sent[0].kept
