"""Refusals as providers word them, through real sockets: what is cut, what is learned, and what is left alone."""

import json
from typing import Any

import pytest

from tests.fakes.upstream import Exchange, FakeUpstream, completion
from tests.proxy.counted import total
from tests.proxy.dialogues import body, dialogue
from tests.proxy.proxied import Records, Start, post
from tests.validator import worsened

ROUTE = "defaults: {window: 100000, reserve_output: 0, policy: fifo, pin: {first_user: false}}"
LIMIT = 1500
JSON = ("Content-Type", "application/json")


class Provider:
    """An upstream that refuses every prompt over LIMIT tokens with these words and this status."""

    def __init__(self, status: int, words: Any) -> None:
        self.status = status
        self.words = words

    async def __call__(self, exchange: Exchange) -> None:
        count = total("gpt-4o", exchange.json["messages"])
        if count > LIMIT:
            said = json.dumps(self.words).replace("PROMPT", str(count)).replace("LIMIT", str(LIMIT))
            await exchange.answer(said.encode(), self.status, JSON)
        else:
            await completion(exchange)


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}}


NAMED: dict[str, tuple[int, Any]] = {
    "xai": (
        400,
        {"code": "x", "error": "This model's maximum prompt length is LIMIT but the request contains PROMPT tokens."},
    ),
    "copilot": (
        400,
        error("prompt token count of PROMPT exceeds the limit of LIMIT", code="model_max_prompt_tokens_exceeded"),
    ),
    "github models": (413, error("Request body too large for gpt-4o model. Max size: LIMIT tokens.")),
    "tgi": (422, {"error": "Input validation error: `inputs` must have less than LIMIT tokens. Given: PROMPT"}),
    "sambanova": (
        400,
        error(
            "The provided prompt is PROMPT tokens long, so generating 1 tokens requires a sequence length of 9, but "
            "the maximum supported sequence length is just LIMIT!"
        ),
    ),
    "tabbyapi": (400, {"detail": "Context length PROMPT is greater than max_seq_len LIMIT"}),
    "watsonx": (
        400,
        {
            "errors": [
                {"message": "the number of input tokens PROMPT cannot exceed the total tokens limit LIMIT for it"}
            ]
        },
    ),
    "vertex, in a list": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (PROMPT) exceeds the maximum number of tokens allowed (LIMIT).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "wrapped twice": (
        400,
        error(
            "Provider returned error",
            metadata={
                "raw": json.dumps({"message": json.dumps(error("prompt is too long: PROMPT tokens > LIMIT maximum"))})
            },
        ),
    ),
    "moonshot": (400, error("Invalid request: Your request exceeded model token limit: LIMIT")),
}


@pytest.mark.parametrize("provider", NAMED)
async def test_a_limit_is_met_at_once_and_kept_to_from_then_on(
    start: Start, upstream: FakeUpstream, records: Records, provider: str
) -> None:
    upstream.handler = Provider(*NAMED[provider])
    client = await start(ROUTE)
    messages, other = dialogue(30), dialogue(40, size=30)

    refused = await post(client, body(messages))
    known = await post(client, body(other))

    assert (refused.status_code, refused.headers["x-trimtab-action"]) == (200, "retried")
    assert (known.status_code, known.headers["x-trimtab-action"]) == (200, "trimmed")
    assert len(upstream.exchanges) == 3, "one retry, and none where the limit is known"
    assert worsened(messages, upstream.exchanges[1].json["messages"]) == []
    assert (await records.get(2))[1]["window"] == LIMIT


UNNAMED: dict[str, tuple[int, Any]] = {
    "minimax": (400, error("invalid params, context window exceeds limit (2013)")),
    "bedrock": (400, {"message": "Input is too long for requested model."}),
    "zhipu": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    "openai": (400, error("Your input exceeds the context window of this model.", code="context_length_exceeded")),
    "llama.cpp": (500, {"error": {"code": 500, "message": "the request exceeds the available context size."}}),
    "ollama": (400, error("the input length exceeds the context length")),
}


@pytest.mark.parametrize("provider", UNNAMED)
async def test_a_refusal_without_a_limit_binds_nobody_else(
    start: Start, upstream: FakeUpstream, records: Records, provider: str
) -> None:
    """Not the next conversation, and not the same one when the upstream takes it: codes and guesses are no windows."""
    upstream.handler = refusing = Provider(*UNNAMED[provider])
    client = await start(ROUTE)
    messages = dialogue(30)
    await post(client, body(messages))
    upstream.handler = completion
    large = dialogue(200)

    response = await post(client, body(large))

    assert response.headers["x-trimtab-action"] == "pass"
    assert len(upstream.last.json["messages"]) == len(large)
    assert (await records.get(2))[1]["window"] == 100_000
    upstream.handler = refusing
    small = await post(client, body(dialogue(3)))
    assert (small.status_code, small.headers["x-trimtab-action"]) == (200, "pass")


OTHERS: dict[str, tuple[int, Any]] = {
    "tokens per minute": (
        429,
        error(
            "Request too large for gpt-4o on tokens per min (TPM): Limit LIMIT, Requested PROMPT.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "tokens per minute, as too large": (
        413,
        error(
            "Request too large for model on tokens per minute (TPM): Limit LIMIT, Requested PROMPT, please reduce your "
            "message size and try again.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "credits": (
        402,
        error("This request requires more credits. You requested up to 4096 tokens, but can afford LIMIT."),
    ),
    "the answer's limit": (
        400,
        error(
            "max_tokens is too large: 99999. This model supports at most LIMIT completion tokens.", param="max_tokens"
        ),
    ),
    "a filter": (400, error("Rejected by our safety system: reduce the length of the messages", code="content_filter")),
    "a quoted value": (
        400,
        error(
            "Invalid value: 'this model's maximum context length is LIMIT tokens'. Supported values are: 'user'.",
            param="messages[0].role",
            code="invalid_value",
        ),
    ),
    "too many tools": (
        400,
        error("Invalid 'tools': array too long. Expected at most 128.", code="array_above_max_length", param="tools"),
    ),
}


@pytest.mark.parametrize("trouble", OTHERS)
async def test_another_trouble_is_relayed_and_cuts_nothing(start: Start, upstream: FakeUpstream, trouble: str) -> None:
    upstream.handler = Provider(*OTHERS[trouble])
    client = await start(ROUTE)
    messages = dialogue(30)

    first = await post(client, body(messages))
    upstream.handler = completion
    second = await post(client, body(messages))

    assert first.status_code == OTHERS[trouble][0]
    assert first.json()["error"]["message"].startswith(OTHERS[trouble][1]["error"]["message"][:20])
    assert len(upstream.exchanges) == 2
    assert second.headers["x-trimtab-action"] == "pass"
    assert upstream.last.json["messages"] == messages


@pytest.mark.parametrize("status", [400, 413, 500])
async def test_a_refusal_that_stays_is_relayed_after_one_retry(
    start: Start, upstream: FakeUpstream, status: int
) -> None:
    said = json.dumps(error("prompt is too long: 9000 tokens > 8000 maximum")).encode()

    async def stubborn(exchange: Exchange) -> None:
        await exchange.answer(said, status, JSON, ("Retry-After", "7"))

    upstream.handler = stubborn
    response = await post(await start(ROUTE), body(dialogue(300)))

    assert (response.status_code, response.content, response.headers["retry-after"]) == (status, said, "7")
    assert len(upstream.exchanges) == 2
