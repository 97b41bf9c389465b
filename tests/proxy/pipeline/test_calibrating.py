"""A model whose tokenizer nobody knows is counted as its upstream's usage teaches."""

import json
from pathlib import Path

import httpx2

from proxy import config as configs
from proxy.app import create_app
from tests.fakes.server import serving
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import assistant, body, dialogue, user
from tests.proxy.proxied import Records, Start, post

WINDOW = "defaults: {window: 100000, reserve_output: 0, policy: fifo, thresholds: {warn: 0.01}}"


class Tokenizing:
    """An upstream that makes `tokens` of each word, and whose prompt never has more than `most`."""

    def __init__(self, tokens: float, most: int = 10**9) -> None:
        self.tokens = tokens
        self.most = most

    def of(self, messages: list[dict[str, str]]) -> int:
        return int(sum(self.tokens * len(m["content"].split()) + 5 for m in messages))

    async def __call__(self, exchange: Exchange) -> None:
        made = min(self.of(exchange.json["messages"]), self.most)
        reply = {
            "choices": [{"index": 0, "message": assistant("Yes."), "finish_reason": "stop"}],
            "usage": {"prompt_tokens": made, "completion_tokens": 2, "total_tokens": made + 2},
        }
        await exchange.answer(json.dumps(reply).encode(), 200, ("Content-Type", "application/json"))


async def test_the_count_comes_to_what_the_upstream_counts(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = tokenizing = Tokenizing(2.0)
    client = await start(WINDOW)
    messages = dialogue(40)
    errors = []

    for _ in range(6):
        response = await post(client, body(messages, model="house-model"))
        actual = tokenizing.of(messages)
        errors.append(int(response.headers["x-trimtab-tokens-before"]) / actual - 1)
        messages += [assistant("Yes."), user("And the next one?")]

    assert abs(errors[0]) > 0.2, "before anything is known"
    assert all(0 <= error <= 0.12 for error in errors[1:]), "a margin of a tenth, and each message rounded up"


async def test_what_was_learned_outlives_a_restart(upstream: FakeUpstream, tmp_path: Path) -> None:
    """By the model's ratios for new conversations, and by its own last request for one that goes on."""
    upstream.handler = tokenizing = Tokenizing(2.0)
    state = f"state: 'sqlite:///{tmp_path}/state.db'\nstate_timeout_s: 10\naudit: {{path: '{tmp_path}/audit.jsonl'}}"
    config = configs.loads(f"upstreams: {{fake: {{base_url: '{upstream.url}/v1'}}}}\n{state}\n{WINDOW}")
    messages, other = dialogue(40), dialogue(30, size=9)

    async def error(url: str, asked: list[dict[str, str]]) -> float:
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20) as client:
            response = await post(client, body(asked, model="house-model"))
            return int(response.headers["x-trimtab-tokens-before"]) / tokenizing.of(asked) - 1

    async with serving(create_app(config, {})) as url:
        before = await error(url, other)
        for _ in range(4):
            await error(url, messages)
            messages += [assistant("Yes."), user("And the next one?")]
    async with serving(create_app(config, {})) as url:
        going_on, opening = await error(url, messages), await error(url, [user("Which?"), *other])

    assert before < -0.15, "before anything is known"
    assert 0 <= going_on <= 0.12
    assert 0 <= opening <= 0.25


async def test_what_one_key_has_taught_is_not_another_ones(start: Start, upstream: FakeUpstream) -> None:
    upstream.handler = Tokenizing(2.0)
    client = await start(WINDOW)
    content = body(dialogue(40), model="house-model")

    first = await post(client, content, authorization="Bearer one")
    other = await post(client, content, authorization="Bearer two")

    assert first.headers["x-trimtab-tokens-before"] == other.headers["x-trimtab-tokens-before"]


async def test_a_prompt_that_was_cut_in_silence_is_reported_and_teaches_nothing(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    upstream.handler = Tokenizing(1.2, most=500)
    client = await start(WINDOW)

    before = await post(client, body(dialogue(80), model="house-model"))
    after = await post(client, body(dialogue(80), model="house-model"))

    assert before.headers["x-trimtab-tokens-before"] == after.headers["x-trimtab-tokens-before"]
    for record in await records.get(2):
        assert record["upstream_truncated"] is True
        assert record["level"] == "error"
