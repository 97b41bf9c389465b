"""Group E, too long all the same: the one retry, and no loops (E01, E03)."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from policies.fifo import Fifo
from policies.plan import Plan
from policies.types import Context, Window
from proxy.pipeline.outcome import Action
from proxy.route import OnOverflow
from tests.cases.trimmed import trim
from tests.fakes.upstream import Exchange, FakeUpstream, completion
from tests.proxy.counted import total
from tests.proxy.dialogues import agent, assistant, body, dialogue, route, system, user, words
from tests.proxy.proxied import Start, post
from tests.validator import worsened


def error(**fields: Any) -> bytes:
    return json.dumps(
        {"error": {"message": "", "type": "invalid_request_error", "param": None, "code": None, **fields}}
    ).encode()


TOO_LONG: dict[str, tuple[int, bytes]] = {
    "code": (400, error(code="context_length_exceeded", message="Reduce the length of the messages.")),
    "type and figures": (400, error(type="exceed_context_size_error", n_prompt_tokens=2700, n_ctx=2000)),
    "longer than": (
        400,
        error(message="The input (2700 tokens) is longer than the model's context length (2000 tokens)."),
    ),
    "too large": (
        422,
        error(message="Prompt contains 2700 tokens, too large for model with 2000 maximum context length"),
    ),
    "too long": (400, error(message="prompt is too long: 2700 tokens > 2000 maximum")),
    "vllm": (
        400,
        error(message="This model's maximum context length is 2000 tokens. However, you requested 2700 tokens."),
    ),
    "413": (413, error(message="prompt is too long: 2700 tokens > 2000 maximum")),
    "500": (500, error(message="the input (2700 tokens) is longer than the model's context length (2000 tokens)")),
    "wrapped": (
        400,
        error(
            message="Provider returned error",
            code=400,
            metadata={"raw": error(code="context_length_exceeded").decode()},
        ),
    ),
    "a list": (400, b"[" + error(message="prompt is too long: 2700 tokens > 2000 maximum") + b"]"),
    "flat": (
        400,
        json.dumps({"object": "error", "message": "prompt is too long: 2700 tokens > 2000 maximum"}).encode(),
    ),
}


def refusing(status: int, said: bytes, times: int = 1) -> Callable[[Exchange], Awaitable[None]]:
    """An upstream that refuses so many requests in these words, and answers from then on."""
    left = times

    async def handler(exchange: Exchange) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            await exchange.answer(said, status, ("Content-Type", "application/json"), ("x-request-id", str(left)))
        else:
            await completion(exchange)

    return handler


@pytest.mark.parametrize("phrase", TOO_LONG)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_refused_prompt_is_cut_from_the_original_and_sent_once_more(
    start: Start, upstream: FakeUpstream, phrase: str, stream: bool
) -> None:
    """E01: in every wording and under every status."""
    status, said = TOO_LONG[phrase]
    upstream.handler = refusing(status, said)
    messages = dialogue(26)

    response = await post(
        await start("defaults: {window: 8000, reserve_output: 0, policy: fifo}"), body(messages, stream=stream)
    )

    assert (response.status_code, response.headers["x-trimtab-action"]) == (200, "retried")
    first, second = (exchange.json["messages"] for exchange in upstream.exchanges)
    assert first == messages
    assert worsened(messages, second) == []
    assert total("gpt-4o", second) < min(2_000, total("gpt-4o", first))


@pytest.mark.parametrize("phrase", TOO_LONG)
async def test_a_prompt_that_is_refused_twice_is_answered_by_the_upstreams_own_words(
    start: Start, upstream: FakeUpstream, phrase: str
) -> None:
    """E01: status, header fields and bytes of the last refusal, and no third attempt."""
    status, said = TOO_LONG[phrase]
    upstream.handler = refusing(status, said, times=9)

    response = await post(await start("defaults: {window: 8000, reserve_output: 0, policy: fifo}"), body(dialogue(26)))

    assert (response.status_code, response.content) == (status, said)
    assert response.headers["x-request-id"] == str(9 - len(upstream.exchanges))
    assert len(upstream.exchanges) <= 2


OTHER: dict[str, tuple[int, bytes]] = {
    "completion alone": (
        400,
        error(message="max_tokens is too large: 999999. This model supports at most 4096 completion tokens."),
    ),
    "a message about messages": (400, error(message="messages: field required")),
    "too many images": (400, error(message="too many images: 21 > 20 maximum")),
    "rate of tokens": (
        429,
        error(message="Request too large: Limit 30000, Requested 42000 tokens per min", code="rate_limit_exceeded"),
    ),
    "quotes the prompt": (400, error(message="Invalid schema", param="context_length_exceeded.txt")),
    "plain 413": (413, b"<html>413</html>"),
    "empty": (400, b""),
}


@pytest.mark.parametrize("other", OTHER)
async def test_other_errors_evict_nothing_and_are_relayed(start: Start, upstream: FakeUpstream, other: str) -> None:
    """E01."""
    status, said = OTHER[other]
    upstream.handler = refusing(status, said, times=9)
    content = body(dialogue(26))

    response = await post(await start("defaults: {window: 8000, reserve_output: 0, policy: fifo}"), content)

    assert (response.status_code, response.content) == (status, said)
    assert [bytes(exchange.body) for exchange in upstream.exchanges] == [content]


@pytest.mark.parametrize("on_overflow", [OnOverflow.TRUNCATE, OnOverflow.FORCE, OnOverflow.PASSTHROUGH])
@pytest.mark.parametrize("pinned", ["system", "late instructions", "pins"])
def test_pins_over_the_budget_end_in_one_pass(
    monkeypatch: pytest.MonkeyPatch, pinned: str, on_overflow: OnOverflow
) -> None:
    """E03: one plan, one overflow pass, then it is sent as it is; and what changed became smaller."""
    plans = []
    plan = Fifo.plan

    def counted(self: Fifo, window: Window, target: int, context: Context) -> Plan:
        plans.append(target)
        return plan(self, window, target, context)

    monkeypatch.setattr(Fifo, "plan", counted)
    heavy = words(900)
    messages = {
        "system": [system(heavy), *dialogue(8)[1:]],
        "late instructions": [*dialogue(8)[:-1], system(heavy), {"role": "developer", "content": heavy}, user("now")],
        "pins": [*dialogue(8)[:-1], user(heavy), assistant(heavy), user("now")],
    }[pinned]
    pins = (-3, -2) if pinned == "pins" else ()

    found = trim(messages, route(window=600, on_overflow=on_overflow), pins=pins)

    assert len(plans) == 1
    assert found.outcome.action is Action.UNFIT
    assert found.outcome.changed


async def test_another_model_with_a_smaller_window_does_not_loop(start: Start, upstream: FakeUpstream) -> None:
    """E03: the conversation goes on under a budget that its pins alone are over."""
    client = await start(
        "routes:\n- {name: small, match: {model: gpt-4}, window: 300, reserve_output: 0, policy: fifo}\n"
        "- {name: large, window: 8000, reserve_output: 0, policy: fifo}"
    )
    messages = [system(words(500)), *dialogue(20)[1:]]
    for model, action in (("gpt-4o", "pass"), ("gpt-4", "unfit"), ("gpt-4", "unfit"), ("gpt-4o", "pass")):
        response = await post(client, body(messages, model=model))
        assert response.headers["x-trimtab-action"] == action
    assert len(upstream.exchanges) == 4


def test_an_agents_loop_is_trimmed_while_it_runs() -> None:
    """E03: a single turn can be the whole conversation; its oldest calls go, and the task stays."""
    found = trim(agent(40), route(window=1000))

    assert found.after[1] == agent(40)[1]
    assert found.outcome.utilization_after is not None
    assert found.outcome.utilization_after <= 0.6
