"""Group B, what is too much: work, windows that lie, giant messages, message counts and bytes (B13, B15, B16-B19)."""

import asyncio
import gzip
import itertools
import json
import threading
from typing import Any

import pytest
import regex

from proxy.errors import ClientError
from proxy.pipeline.outcome import Action
from proxy.route import OnOverflow
from proxy.tokens import Counter
from tests.cases.histories import stamped
from tests.cases.shapes import calls, every_policy, result
from tests.cases.trimmed import trim
from tests.fakes.server import connected
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import agent, assistant, body, call, dialogue, route, system, user, words
from tests.proxy.proxied import Records, Start, post
from tests.validator import worsened


async def test_a_large_request_holds_up_nobody_else(
    start: Start, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13: while two large bodies are being counted, small requests come and go."""
    counting, go = threading.Semaphore(0), threading.Event()
    measure = Counter.measure

    def slow(self: Counter, message: Any) -> Any:
        if "Question 7:" in message.text and not go.is_set():
            counting.release()
            go.wait(10)
        return measure(self, message)

    client = await start("defaults: {window: 32000, policy: fifo}")
    monkeypatch.setattr(Counter, "measure", slow)
    large = [asyncio.create_task(post(client, body([*dialogue(200, size=500), user(str(n))]))) for n in range(2)]
    await asyncio.to_thread(lambda: [counting.acquire(timeout=10) for _ in large])

    small = await asyncio.gather(*(post(client, body([user(str(n))])) for n in range(25)))
    waiting = [not task.done() for task in large]
    go.set()

    assert [response.status_code for response in small] == [200] * 25
    assert waiting == [True, True]
    assert [(await task).headers["x-trimtab-action"] for task in large] == ["trimmed"] * 2


def usage(tokens: int) -> Any:
    async def handler(exchange: Exchange) -> None:
        reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}
        reply["usage"] = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}  # type: ignore[assignment]
        await exchange.answer(json.dumps(reply).encode(), 200, ("Content-Type", "application/json"))

    return handler


async def test_a_prompt_that_an_upstream_cut_quietly_is_reported(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    """B15: it says so in the audit, and the next estimate is not drawn down by it."""
    content = body(dialogue(60, size=60), model="house-model")
    client = await start("defaults: {window: 20000, policy: fifo, reserve_output: 0}")
    upstream.handler = usage(2050)

    first = await post(client, content)
    second = await post(client, content)

    assert (await records.get(2))[0]["upstream_truncated"] is True
    counts = [response.headers["x-trimtab-tokens-before"] for response in (first, second)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("on_overflow", list(OnOverflow))
@every_policy
def test_a_live_message_larger_than_the_window_is_never_cut(policy: str, on_overflow: OnOverflow) -> None:
    """B16: it is refused where the route says so, else it is for the upstream to decide."""
    giant = user(words(3000))
    messages = [system(), user("q"), assistant(words(50)), giant]
    chosen = route(policy, window=1000, on_overflow=on_overflow)
    if on_overflow is OnOverflow.REJECT:
        with pytest.raises(ClientError, match="pinned user") as refused:
            trim(messages, chosen)
        assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
        return

    found = trim(messages, chosen)

    assert found.outcome.action is Action.UNFIT
    assert found.after[-1] == giant
    assert found.after[0] == messages[0]
    assert found.outcome.alarming


GIANTS = [
    "berth ",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u6e2f\u53e3\u306e\u30af\u30ec\u30fc\u30f3",
    "e\u0301",
    "\U0001f1e9\U0001f1ea",
    "a\r\n",
]


@pytest.mark.parametrize("text", GIANTS, ids=ascii)
@pytest.mark.parametrize("parts", [False, True], ids=["string", "parts"])
def test_a_giant_result_is_cut_in_its_middle_between_characters(text: str, parts: bool) -> None:
    """B16: both ends stay, the marker says how much is missing, and no character is split."""
    giant = text * (9000 // len(text))
    content: Any = [{"type": "text", "text": giant}] if parts else giant
    for shift in range(3):
        shifted = "x" * shift
        value = [{"type": "text", "text": shifted + giant}] if parts else shifted + content
        messages = [user("q"), calls(1), {**result(1, ""), "content": value}, user("now")]
        found = trim(messages, route(window=1500))
        assert found.outcome.action is not Action.UNFIT
        sent = found.after[2]["content"]
        kept = sent[0]["text"] if parts else sent
        head, _, rest = kept.partition("\n[\u2026 ")
        tail = rest.partition(" \u2026]\n")[2]
        whole = regex.findall(r"\X", shifted + giant)
        for end, own in ((head, whole), (tail[::-1], [character[::-1] for character in whole[::-1]])):
            assert end
            assert len(end) in itertools.accumulate(map(len, own)), "a character is split"
            assert "".join(own).startswith(end)
        assert f"{len(shifted + giant) - len(head) - len(tail)} characters" in rest


TURNS = [user("q"), *(message for n in range(600) for message in (user(f"u{n}"), assistant(f"a{n}")))][1:]


@pytest.mark.parametrize("kind", ["turns", "calls", "late instructions"])
@pytest.mark.parametrize("policy", ["fifo", "priority"])
def test_no_more_messages_are_sent_than_a_provider_takes(policy: str, kind: str) -> None:
    """B18: with room for all the tokens, in the same groups as ever."""
    messages = {
        "turns": [*TURNS, user("now")],
        "calls": agent(600, size=1),
        "late instructions": [*TURNS[:600], system("late"), *TURNS[600:], user("now")],
    }[kind]

    found = trim(stamped(messages), route(policy, window=1_000_000, max_messages=1000))

    assert 500 < len(found.after) <= 1000


async def test_no_more_bytes_are_sent_than_a_provider_takes(start: Start, upstream: FakeUpstream) -> None:
    """B19: pictures are few tokens and many bytes; the oldest go."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 300_000, "detail": "low"}}
    messages = [system()]
    for number in range(12):
        messages += [{"role": "user", "content": [picture, {"type": "text", "text": str(number)}]}, assistant("seen")]
    messages.append(user("and now?"))
    client = await start("defaults: {window: 128000, policy: fifo, max_bytes: 1000000, pin: {first_user: false}}")

    await post(client, body(messages))

    assert 500_000 < len(upstream.last.body) <= 1_000_000
    assert worsened(messages, upstream.last.json["messages"]) == []


async def test_bodies_of_many_megabytes_pass_by_default(start: Start, upstream: FakeUpstream) -> None:
    """B19: the cap is above those of the providers."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_600_000, "detail": "low"}}
    content = body([{"role": "user", "content": [picture] * 24}])
    assert len(content) > 36_000_000

    response = await post(await start("defaults: {window: 128000, policy: fifo}"), content)

    assert response.status_code == 200
    assert len(upstream.last.body) == len(content)
    assert bytes(upstream.last.body) == content


@pytest.mark.parametrize("way", ["declared", "chunked", "bomb", "nested bomb"])
async def test_a_body_over_the_cap_gets_an_answer_that_clients_understand(
    start: Start, upstream: FakeUpstream, way: str
) -> None:
    """B19, D13: in OpenAI's shape, however the size is hidden."""
    client = await start("server: {max_body_bytes: 50000}\ndefaults: {policy: fifo}")
    content, headers = body([user("a" * 60_000)]), {}
    if "bomb" in way:
        content, headers = gzip.compress(content), {"content-encoding": "gzip"}
    if way == "nested bomb":
        content, headers = gzip.compress(content), {"content-encoding": "gzip, gzip"}

    async def pieces() -> Any:
        for at in range(0, len(content), 10_000):
            yield content[at : at + 10_000]

    sent: Any = pieces() if way == "chunked" else content
    response = await client.post("/v1/chat/completions", content=sent, headers=headers)

    assert response.status_code == 413
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "body_too_large"
    assert "50000" in error["message"]
    assert upstream.exchanges == []


@pytest.mark.parametrize("digits", ["9" * 12, "9" * 25, "9" * 5000, "-1", "+5", "0x10", "", "1, 1", "12 "])
async def test_an_absurd_length_is_refused_without_a_500(start: Start, upstream: FakeUpstream, digits: str) -> None:
    client = await start("defaults: {policy: fifo}")
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.send(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
            b"Content-Length: %b\r\n\r\nabcdefghijkl" % digits.encode()
        )
        status, _ = await raw.head()
    assert status in (400, 413) or (digits == "12 " and status == 200)


@pytest.mark.parametrize("kind", ["html", "json", "empty"])
async def test_an_upstreams_413_is_relayed_and_the_body_is_not_sent_again(
    start: Start, upstream: FakeUpstream, kind: str
) -> None:
    """B19."""
    page = {
        "html": b"<html><h1>413 Request Entity Too Large</h1></html>",
        "json": b'{"detail": "too large"}',
        "empty": b"",
    }[kind]

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(page, 413, ("Content-Type", "text/html" if kind == "html" else "application/json"))

    upstream.handler = refuse
    response = await post(await start("defaults: {window: 128000, policy: fifo}"), body([user("x"), *call(1, "r")]))

    assert (response.status_code, response.content) == (413, page)
    assert len(upstream.exchanges) == 1
