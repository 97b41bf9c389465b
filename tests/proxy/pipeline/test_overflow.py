"""What a prompt comes down to where nothing more may be evicted: strings cut from their middle, as hard as it takes."""

import json
from typing import Any

import pytest

from proxy import wire
from proxy.pipeline.outcome import Action
from proxy.pipeline.overflow import least
from proxy.tokens import counter
from tests.cases.trimmed import Trimmed, trim
from tests.proxy.dialogues import Message, assistant, body, call, route, system, user, words

RESULTS = 6


def looked_up(characters: int) -> list[Message]:
    """One task, and calls whose results are all protected, of so many characters each."""
    results = [json.dumps({"berth": words(characters, n)})[:characters] for n in range(RESULTS)]
    calls = [message for n, result in enumerate(results) for message in call(n, result)]
    return [system(), user("Which berth is free?"), *calls]


def trimmed(messages: list[Message], window: int, **settings: Any) -> Trimmed:
    return trim(messages, route(window=window, protect_last=20, recall_budget=0.0, **settings))


def fewest(messages: list[Message], window: int) -> int:
    outcome = trimmed(messages, window).outcome
    assert outcome.prompt is not None
    assert outcome.window is not None
    return least(outcome.prompt, outcome.window, counter("gpt-4o").content)


def tokens(messages: list[Message]) -> int:
    chat, chosen = wire.parse(body(messages)), counter("gpt-4o")
    return sum(map(chosen.message, chat.messages)) + chosen.overhead(chat.settings)


@pytest.mark.parametrize("characters", [3000, 500, 300, 150])
def test_what_can_be_cut_down_to_the_budget_is(characters: int) -> None:
    messages = looked_up(characters)
    window = fewest(messages, 100) + 10

    found = trimmed(messages, window)

    assert found.outcome.action is Action.TRIMMED
    assert tokens(found.after) <= window < tokens(messages)
    assert [message["role"] for message in found.after] == [message["role"] for message in messages]
    assert all(message["content"] for message in found.after if message["role"] == "tool")


def test_what_cannot_be_cut_down_to_the_budget_is_not_cut_at_all() -> None:
    """The upstream decides then, and it may take more than was thought."""
    messages = looked_up(3000)
    found = trimmed(messages, fewest(messages, 100) - 1)

    assert found.outcome.action is Action.UNFIT
    assert found.after == messages


def test_strings_are_cut_hard_only_where_others_gently_cut_do_not_do() -> None:
    messages = looked_up(3000)
    gentle = trimmed(messages, fewest(messages, 100) + RESULTS * 120)
    harsh = trimmed(messages, fewest(messages, 100) + RESULTS * 20)

    lengths = [[len(m["content"]) for m in found.after if m["role"] == "tool"] for found in (gentle, harsh)]
    assert min(lengths[0]) >= 256
    assert min(lengths[1]) < 256
    assert lengths[1] == sorted(lengths[1]), "the oldest first"


def test_the_least_counts_what_may_not_be_cut_in_full() -> None:
    said = assistant(words(400))
    messages = [system(), user("Which berth is free?"), said, user("And now?")]

    assert fewest(messages, 100) == tokens(messages)
