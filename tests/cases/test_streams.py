"""Group D, answers: streams, their ends, and who leaves first (D01, D02, D04, D05, D07, D10, D11, D14, D19).

D08, a recall tool that the model calls, is not a part of this proxy: what was evicted comes back as a note.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from proxy.streaming import Reader
from tests.fakes.server import connected
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import assistant, body, dialogue, user, words
from tests.proxy.proxied import Records, Start, post

LARGE, SMALL = "defaults: {window: 128000}", "defaults: {window: 1000, reserve_output: 0, policy: fifo}"
ASK = body([user("q")], stream=True)


def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    event = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
CALL = {"index": 0, "id": "call_1", "function": {"name": "look_up", "arguments": '{"berth":"\u6e2f\U0001f6a2"}'}}
WIDE = (
    chunk(content="\u6e2f\u53e3 \U0001f468\u200d\U0001f469")
    + chunk(tool_calls=[CALL])
    + chunk(finish="tool_calls")
    + DONE
)


def sending(*pieces: bytes, end: bool = True) -> Callable[[Exchange], Awaitable[None]]:
    """An upstream that streams these bytes, each in a chunk of its own."""

    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        for piece in pieces:
            await exchange.chunk(piece)
        if not end:
            await exchange.gone.wait()
        await exchange.chunk(b"")

    return handler


def test_a_character_split_anywhere_is_read_whole() -> None:
    """D01: every split of a stream with wide characters in texts and arguments, and every byte by itself."""
    for splits in [[at] for at in range(1, len(WIDE))] + [list(range(1, len(WIDE)))]:
        reader = Reader("text/event-stream")
        for start, end in zip([0, *splits], [*splits, len(WIDE)], strict=True):
            reader.feed(WIDE[start:end])
        reading = reader.result()
        assert reading.message is not None
        assert reading.message["content"] == "\u6e2f\u53e3 \U0001f468\u200d\U0001f469"
        assert reading.message["tool_calls"][0]["function"]["arguments"] == CALL["function"]["arguments"]  # type: ignore[index]
        assert (reading.done, dict(reading.finish_reasons)) == (True, {0: "tool_calls"})


STREAMS: dict[str, tuple[list[bytes], str, str | None]] = {
    "split characters": ([WIDE[at : at + 1] for at in range(len(WIDE))], "done", None),
    "comments": (
        [b": PROCESSING\n\n", b":\n\n", chunk(content="a"), b": again\n\n", chunk(finish="stop"), DONE],
        "done",
        None,
    ),
    "comment inside an event": ([b": x\ndata: {}\n: y\n\n", chunk(finish="stop"), DONE], "done", None),
    "carriage returns": ([chunk(content="a").replace(b"\n", b"\r\n"), DONE.replace(b"\n", b"\r\n")], "done", None),
    "no done": ([chunk(content="a"), chunk(finish="stop")], "eof", None),
    "nothing": ([], "eof", None),
    "half an event": ([chunk(content="a"), b'data: {"choices": [{"delta"'], "eof", None),
    "done without a blank line": ([chunk(content="a"), b"data: [DONE]"], "done", None),
    "garbage": ([b"\xff\xfe\x00 garbage \n\n", b"data: not json\n\n", chunk(content="a"), DONE], "done", None),
    "error event": (
        [b'event: error\ndata: {"error":{"message":"m","code":"context_length_exceeded"}}\n\n'],
        "eof",
        "context_length_exceeded",
    ),
    "overloaded": (
        [b'data: {"error":{"message":"m","type":"overloaded_error"}}\n\n', DONE],
        "done",
        "overloaded_error",
    ),
    "late error": (
        [chunk(content="a"), b'data: {"error":{"message":"m","code":"server_error"}}\n\n'],
        "eof",
        "server_error",
    ),
    "error without framing": ([chunk(content="a"), b'{"error":{"message":"m","code":"boom"}}'], "eof", "boom"),
    "error as a word": ([b'data: {"error":"it broke while reading your prompt"}\n\n'], "eof", "error"),
    "other fields": ([b"retry: 3000\nid: 7\nevent: message\n" + chunk(content="a"), DONE], "done", None),
    "several choices": (
        [
            chunk(2, content="c"),
            chunk(0, content="a") + chunk(1, content="b"),
            chunk(1, "stop"),
            chunk(0, "length"),
            DONE,
        ],
        "done",
        None,
    ),
}


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_stream_is_relayed_to_the_byte_and_its_end_recorded(
    start: Start, upstream: FakeUpstream, records: Records, stream: str
) -> None:
    """D01, D02, D04, D05, D19: nothing is added, left out or sent twice, whatever it holds.

    Of D05, DESIGN.md holds: a stream whose first event is an error has begun; it is relayed and recorded.
    """
    pieces, end, error = STREAMS[stream]
    upstream.handler = sending(*pieces)

    response = await post(await start(LARGE), ASK)

    assert (response.status_code, response.content) == (200, b"".join(pieces))
    assert len(upstream.exchanges) == 1
    (record,) = await records.get()
    assert (record["stream_end"], record["error"]) == (end, error)


@pytest.mark.parametrize("way", ["done", "eof", "error event", "reset", "stalled", "client gone"])
async def test_every_end_of_a_stream_ends_the_turn(
    start: Start, upstream: FakeUpstream, records: Records, way: str
) -> None:
    """D04, E10: what belongs to the conversation is decided again at once, not when a lease runs out."""
    client = await start(SMALL.replace("fifo", "fifo, hold: {wait_s: 0}") + "\nserver: {drain_s: 0}")
    messages = dialogue(16)
    first = body(messages, stream=True)
    pieces = {"done": [chunk(content="a"), DONE], "error event": STREAMS["error event"][0]}.get(
        way, [chunk(content="a")]
    )

    async def breaking(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        await exchange.chunk(pieces[0])
        exchange.reset()

    upstream.handler = breaking if way == "reset" else sending(*pieces, end=way not in ("stalled", "client gone"))
    if way in ("stalled", "client gone"):
        async with client.stream("POST", "/v1/chat/completions", content=first) as response:
            await anext(response.aiter_raw())
        await asyncio.wait_for(upstream.last.gone.wait(), 2)
    elif way == "reset":
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(client, first)
    else:
        await post(client, first)
    await records.get(1)
    upstream.handler = sending(DONE)

    grown = [*messages, assistant(words(600)), user("and now?")]
    response = await post(client, body(grown, stream=True))

    assert response.headers["x-trimtab-action"] == "trimmed", "not held"


async def test_each_event_is_through_before_the_next_is_written(start: Start, upstream: FakeUpstream) -> None:
    """D07: also of a request that was trimmed; no reply is gathered, and none has a time limit of its own."""
    step = asyncio.Event()

    async def stepwise(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        for number in range(5):
            await exchange.chunk(chunk(content=str(number)))
            await step.wait()
            step.clear()
        await exchange.chunk(b"")

    upstream.handler = stepwise
    client = await start(SMALL)
    async with client.stream("POST", "/v1/chat/completions", content=body(dialogue(20), stream=True)) as response:
        assert response.headers["x-trimtab-action"] == "trimmed"
        arrived = response.aiter_raw()
        for number in range(5):
            assert await asyncio.wait_for(anext(arrived), 5) == chunk(content=str(number))
            step.set()


@pytest.mark.parametrize("fault", ["feed", "result", "record", "release"])
async def test_no_fault_of_ours_spoils_an_answer(
    start: Start, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """D10: once the upstream has answered, the client gets that answer."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(fault)

    target = {
        "feed": "proxy.streaming.Reader.feed",
        "result": "proxy.streaming.Reader.result",
        "record": "proxy.pipeline.outcome.Outcome.record",
        "release": "proxy.conversations.turns.Turn.release",
    }
    monkeypatch.setattr(target[fault], fail)
    upstream.handler = sending(WIDE)
    client = await start(SMALL)

    for _ in range(2):
        response = await post(client, body(dialogue(16), stream=True))
        assert (response.status_code, response.content) == (200, WIDE)


async def silent(exchange: Exchange) -> None:
    await exchange.gone.wait()


@pytest.mark.parametrize("content", [body([user("q")]), ASK, body(dialogue(20))], ids=["whole", "stream", "trimmed"])
@pytest.mark.parametrize("phase", ["before the head", "before the first byte", "in the stream"])
async def test_a_client_that_leaves_is_noticed_upstream_at_once(
    start: Start, upstream: FakeUpstream, records: Records, phase: str, content: bytes
) -> None:
    """D11: in each phase, within a second; the audit says so."""

    async def handler(exchange: Exchange) -> None:
        if phase != "before the head":
            await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        if phase == "in the stream":
            await exchange.chunk(chunk(content="a"))
        await silent(exchange)

    upstream.handler = handler
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", b"/v1/chat/completions", body=content)
        exchange = await upstream.arrival()
        await asyncio.wait_for(exchange.received.wait(), 5)
        if phase != "before the head":
            await raw.head()
        if phase == "in the stream":
            await raw.chunk()
    await asyncio.wait_for(exchange.gone.wait(), 1)

    assert (await records.get())[0]["stream_end"] == "client_gone"


async def test_a_client_that_leaves_while_its_request_is_held_leaves_nothing_behind(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    """D11, E10: a held request that nobody waits for is never sent, and holds nobody else."""
    client = await start(SMALL.replace("fifo", "fifo, hold: {wait_s: 30}"))
    upstream.handler = sending(chunk(content="a"), end=False)
    messages = dialogue(12)
    async with client.stream("POST", "/v1/chat/completions", content=body(messages, stream=True)) as response:
        arrived = response.aiter_raw()  # a name of its own: what is collected as garbage is closed
        await anext(arrived)
        follow = body([*messages, assistant("a"), user(words(800, 3))])
        async with connected(str(client.base_url).rstrip("/")) as raw:
            await raw.request("POST", b"/v1/chat/completions", body=follow)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.05)
        assert len(upstream.exchanges) == 1
    await asyncio.wait_for(upstream.last.gone.wait(), 2)
    upstream.handler = sending(DONE)
    await records.get(1)

    response = await post(client, follow)

    assert response.headers["x-trimtab-action"] == "trimmed"


def test_choices_that_come_in_turns_are_told_apart() -> None:
    """D19: by their index, with logprobs in every chunk; the reply is the first choice."""
    reader = Reader("text/event-stream")
    for number in range(30):
        piece = json.loads(chunk(number % 3, content=f"{number % 3}{number} ")[6:])
        piece["choices"][0]["logprobs"] = {"content": [{"token": str(n), "logprob": -0.1} for n in range(20)]}
        reader.feed(b"data: " + json.dumps(piece).encode() + b"\n\n")
    for index, reason in ((2, "stop"), (0, "length"), (1, "tool_calls")):
        reader.feed(chunk(index, reason))
    reading = reader.result()

    assert dict(reading.finish_reasons) == {0: "length", 1: "tool_calls", 2: "stop"}
    assert reading.message is not None
    assert reading.message["content"] == "".join(f"0{n} " for n in range(0, 30, 3))
