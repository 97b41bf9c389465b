"""OpenAI's own SDK through the proxy."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from fakes.proxying import Passthrough
from fakes.upstream import Exchange, FakeUpstream

from proxy.upstream import Upstream

MESSAGES = [{"role": "user", "content": "hi"}]
CHUNK = '{"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%s"}}]}'


@pytest.fixture
async def sdk(upstream: FakeUpstream, serve) -> AsyncIterator[openai.AsyncOpenAI]:
    url = await serve(Passthrough(Upstream("fake", f"{upstream.url}/v1", "sk-own", idle_s=2)))
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-client", max_retries=0) as client:
        yield client


async def test_a_completion(sdk, upstream) -> None:
    reply = await sdk.chat.completions.create(model="m", messages=MESSAGES)
    assert reply.choices[0].message.content == "Hello!"
    assert upstream.last.target == b"/v1/chat/completions"
    assert upstream.last.header("authorization") == b"Bearer sk-own"


async def test_a_stream(sdk, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.sse(*(CHUNK % word for word in ("one ", "two ", "三")))

    upstream.handler = answer
    stream = await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert [chunk.choices[0].delta.content async for chunk in stream] == ["one ", "two ", "三"]


async def test_a_stream_that_breaks_off_is_an_error(sdk, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(f"data: {CHUNK % 'one'}\n\n".encode())
        await asyncio.sleep(0.05)
        exchange.reset()

    upstream.handler = answer
    stream = await sdk.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert (await anext(stream)).choices[0].delta.content == "one"
    with pytest.raises(openai.APIConnectionError):
        await anext(stream)


async def test_an_upstreams_error_is_relayed_with_its_headers(sdk, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        body = b'{"error": {"message": "slow down", "type": "requests", "param": null, "code": "rate_limit_exceeded"}}'
        await exchange.answer(body, 429, ("Content-Type", "application/json"), ("x-request-id", "req_1"))

    upstream.handler = answer
    with pytest.raises(openai.RateLimitError) as caught:
        await sdk.chat.completions.create(model="m", messages=MESSAGES)
    assert (caught.value.code, caught.value.request_id) == ("rate_limit_exceeded", "req_1")


async def test_the_proxys_own_error_is_read_as_one(sdk, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.reset()

    upstream.handler = answer
    with pytest.raises(openai.InternalServerError) as caught:
        await sdk.chat.completions.create(model="m", messages=MESSAGES)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_broken")


async def test_a_file_goes_up(sdk, upstream) -> None:
    async def answer(exchange: Exchange) -> None:
        reply = b'{"id":"f","object":"file","bytes":3,"created_at":1,"filename":"x","purpose":"batch"}'
        await exchange.answer(reply, 200, ("Content-Type", "application/json"))

    upstream.handler = answer
    content = bytes(range(256)) * 8192
    await sdk.files.create(file=("x.bin", content), purpose="batch")
    assert content in bytes(upstream.last.body)
