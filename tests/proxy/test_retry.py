"""What an upstream finds too long is trimmed and sent once more; everything else it says is relayed."""

import json
from typing import Any

import pytest

from proxy.upstream.overflow_errors import Kind, Refusal
from proxy.upstream.retrying import Refused, refused
from tests.fakes.upstream import Exchange, FakeUpstream, completion
from tests.proxy.dialogues import body, dialogue, user
from tests.proxy.proxied import Records, Start, post
from tests.validator import worsened

JSON = ("Content-Type", "application/json")
OVERFLOW: dict[str, Any] = {
    "error": {
        "message": "This model's maximum context length is 1000 tokens, but your messages resulted in 1984 tokens.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
}
WIDE = "defaults: {window: 2600, reserve_output: 0, policy: fifo, breathing_turns: 0}"


class Strict:
    """An upstream that refuses more than `most` messages, in these words, and answers fewer."""

    def __init__(self, most: int, error: dict[str, Any] = OVERFLOW, status: int = 400) -> None:
        self.most = most
        self.error = error
        self.status = status

    async def __call__(self, exchange: Exchange) -> None:
        if len(exchange.json["messages"]) > self.most:
            await exchange.answer(json.dumps(self.error).encode(), self.status, JSON)
        else:
            await completion(exchange)


async def test_a_refused_prompt_is_trimmed_to_the_limit_that_was_named(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    upstream.handler = Strict(40)
    client = await start(WIDE)
    messages = dialogue(20)

    response = await post(client, body(messages))

    first, second = (exchange.json["messages"] for exchange in upstream.exchanges)
    assert response.status_code == 200
    assert response.headers["x-trimtab-action"] == "retried"
    assert first == messages
    assert worsened(messages, second) == []
    assert int(response.headers["x-trimtab-tokens-after"]) <= 600
    (record,) = await records.get()
    assert record["trigger"] == "retry"
    assert record["retry_of"]
    assert record["window"] == 1000


async def test_the_limit_is_learned_so_the_next_request_is_not_refused(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = Strict(40)
    client = await start(WIDE)

    await post(client, body(dialogue(20)))
    response = await post(client, body(dialogue(21, size=41)))

    assert len(upstream.exchanges) == 3
    assert response.headers["x-trimtab-action"] == "trimmed"
    assert int(response.headers["x-trimtab-tokens-after"]) <= 700


async def test_a_model_of_unknown_window_is_trimmed_once_its_upstream_has_spoken(
    start: Start, upstream: FakeUpstream
) -> None:
    upstream.handler = Strict(40)
    client = await start("defaults: {reserve_output: 0, policy: fifo}")

    response = await post(client, body(dialogue(20), model="nobody-knows"))

    assert response.status_code == 200
    assert response.headers["x-trimtab-action"] == "retried"


async def test_it_is_tried_once_more_and_no_more(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = Strict(0)
    client = await start(WIDE)

    response = await post(client, body(dialogue(20)))

    assert len(upstream.exchanges) == 2
    assert response.status_code == 400
    assert response.json() == OVERFLOW


COMPLETION = {
    "error": {
        "message": "max_tokens is too large: 20000. This model supports at most 16384 completion tokens.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "invalid_value",
    }
}
LIMITED = {"error": {"message": "Rate limit reached: 30000 tokens per min", "code": "rate_limit_exceeded"}}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(COMPLETION, 400, id="the completion alone"),
        pytest.param(LIMITED, 429, id="a rate limit"),
        pytest.param({"error": {"message": "Invalid value", "code": "invalid_value"}}, 400, id="another error"),
        pytest.param({"error": {"message": "overloaded"}}, 503, id="an outage"),
    ],
)
async def test_other_errors_are_relayed_and_evict_nothing(
    start: Start, upstream: FakeUpstream, error: dict[str, Any], status: int
) -> None:
    upstream.handler = Strict(0, error, status)
    client = await start(WIDE)

    response = await post(client, body(dialogue(20)))

    assert len(upstream.exchanges) == 1
    assert (response.status_code, response.json()) == (status, error)


@pytest.mark.parametrize("how", ["bypass", "shadow", "off"])
async def test_who_asked_to_be_left_alone_is(start: Start, upstream: FakeUpstream, how: str) -> None:
    upstream.handler = Strict(0)
    client = await start(WIDE if how == "bypass" else WIDE.replace("policy:", f"mode: '{how}', policy:"))

    response = await post(client, body(dialogue(20)), **({"x-trimtab-bypass": "1"} if how == "bypass" else {}))

    assert len(upstream.exchanges) == 1
    assert response.json() == OVERFLOW


async def test_what_cannot_be_cut_is_not_sent_again(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = Strict(0)
    client = await start(WIDE)

    response = await post(client, body([user("one question that is all there is " * 20)]))

    assert len(upstream.exchanges) == 1
    assert response.json() == OVERFLOW


async def test_a_conversation_goes_on_from_the_retrys_cut(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = Strict(40)
    client = await start(WIDE)
    messages = dialogue(20)
    await post(client, body(messages))
    retried = upstream.last.json["messages"]

    messages += [{"role": "assistant", "content": "Hello!"}, user("Go on.")]
    await post(client, body(messages))

    assert upstream.last.json["messages"] == [*retried, *messages[-2:]]


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        pytest.param(Refusal(kind=Kind.CONTEXT, limit=1000), Refused(1000, 100, 900), id="a limit"),
        pytest.param(Refusal(kind=Kind.CONTEXT, limit=1000, output=300), Refused(1000, 300, 700), id="and the answer"),
        pytest.param(
            Refusal(kind=Kind.CONTEXT, limit=1000, prompt=4000), Refused(1000, 100, 450), id="it counts twice as much"
        ),
        pytest.param(Refusal(kind=Kind.CONTEXT, limit=1000, prompt=1000), Refused(1000, 100, 900), id="it counts less"),
        pytest.param(Refusal(kind=Kind.CONTEXT), Refused(None, 100, 1800), id="no figures"),
        pytest.param(Refusal(kind=Kind.CONTEXT, over=700), Refused(None, 100, 1300), id="only by how much"),
        pytest.param(Refusal(kind=Kind.CONTEXT, limit=80), Refused(80, 40, 40), id="a guessed reserve gives way"),
        pytest.param(Refusal(kind=Kind.CONTEXT, limit=80, output=90), None, id="the answer alone is too long"),
        pytest.param(Refusal(kind=Kind.COMPLETION, limit=1000), None, id="the completion"),
        pytest.param(Refusal(kind=Kind.BODY), None, id="bytes"),
    ],
)
def test_what_a_refusal_leaves_room_for(refusal: Refusal, expected: Refused | None) -> None:
    assert refused(refusal, 2000, 100) == expected
