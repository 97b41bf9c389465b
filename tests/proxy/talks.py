"""A client that keeps a conversation and sends the whole of it with every request, and an upstream that answers it."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

from proxy import wire
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.counted import total
from tests.proxy.dialogues import Message, words

MODEL = "gpt-4o"


def answering(upstream: FakeUpstream, *, size: int = 30) -> None:
    """Let the upstream answer with words, or with a call where the request has tools; `id` names the exchange."""

    async def handler(exchange: Exchange) -> None:
        await answer(exchange, upstream.exchanges.index(exchange), size)

    upstream.handler = handler


async def answer(exchange: Exchange, number: int, size: int = 30) -> None:
    """The answer of exchange `number`, at once: streamed, or whole."""
    if exchange.json.get("stream"):
        await exchange.sse(*(json.dumps(chunk) for chunk in chunks(reply(exchange, number, size), number)))
        return
    choice = {"index": 0, "message": reply(exchange, number, size), "finish_reason": "stop"}
    whole = {"id": str(number), "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    await exchange.answer(json.dumps(whole).encode(), 200, ("Content-Type", "application/json"))


def reply(exchange: Exchange, number: int, size: int) -> Message:
    """A call named after the exchange, or words that depend on nothing but what was asked."""
    if not exchange.json.get("tools"):
        asked = str(exchange.json["messages"][-1]["content"])
        return {"role": "assistant", "content": f"Answer to {asked[:20]!r}: {words(size, len(asked))}."}
    function = {"name": "look_up", "arguments": f'{{"n": {number}}}'}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chunks(message: Message, number: int) -> list[dict[str, Any]]:
    """The message as a stream would bring it: a text in two pieces, or a call whose arguments come after it."""
    if text := message["content"]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": text[:9]}, {"content": text[9:]}]
    else:
        (call,) = message["tool_calls"]
        function = call["function"]
        begun = {**call, "index": 0, "function": {**function, "arguments": ""}}
        deltas = [
            {"role": "assistant", "content": None, "tool_calls": [begun]},
            {"tool_calls": [{"index": 0, "function": {"arguments": function["arguments"]}}]},
        ]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    common = {"id": str(number), "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return [{**common, "choices": [choice]} for choice in choices]


@dataclass(frozen=True)
class Sent:
    """What went upstream for one request, message by message as bytes, and what came back."""

    exchange: Exchange
    raw: tuple[bytes, ...]
    response: httpx2.Response

    @property
    def messages(self) -> list[Message]:
        return [json.loads(raw) for raw in self.raw]

    @property
    def action(self) -> str:
        return self.response.headers["x-trimtab-action"]

    @property
    def audit_id(self) -> str:
        return self.response.headers["x-trimtab-audit-id"]

    @property
    def evicted(self) -> int:
        return int(self.response.headers["x-trimtab-evicted"])


@dataclass
class Talk:
    """One conversation of one client."""

    client: httpx2.AsyncClient
    upstream: FakeUpstream
    messages: list[Message]
    fields: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return json.dumps({"model": MODEL, **self.fields, "messages": self.messages}, ensure_ascii=False).encode()

    async def send(self, *new: Message, client: httpx2.AsyncClient | None = None, **headers: str) -> Sent:
        """Send the conversation with these messages added, and add what is answered."""
        self.messages += new
        response = await (client or self.client).post(
            "/v1/chat/completions",
            content=self.content,
            headers={"content-type": "application/json", **self.headers, **headers},
        )
        assert response.status_code == 200, response.text
        number, message = said(response)
        self.messages.append(message)
        exchange = self.upstream.exchanges[number]
        return Sent(exchange, parts(exchange), response)

    def branch(self, length: int | None = None, *new: Message) -> "Talk":
        """Another conversation with the same beginning."""
        return Talk(self.client, self.upstream, [*self.messages[:length], *new], self.fields, dict(self.headers))


def said(response: httpx2.Response) -> tuple[int, Message]:
    """Which exchange answered, and the assistant's message as a client puts it together."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        whole = response.json()
        return int(whole["id"]), whole["choices"][0]["message"]
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    message: Message = {"role": "assistant", "content": "".join(d.get("content") or "" for d in deltas) or None}
    pieces = [call for delta in deltas for call in delta.get("tool_calls", ())]
    if pieces:
        function = {
            "name": pieces[0]["function"]["name"],
            "arguments": "".join(piece["function"]["arguments"] for piece in pieces),
        }
        message["tool_calls"] = [{"id": pieces[0]["id"], "type": "function", "function": function}]
    return int(events[0]["id"]), message


def parts(exchange: Exchange) -> tuple[bytes, ...]:
    """The messages of a forwarded request, byte for byte."""
    chat = wire.parse(bytes(exchange.body))
    return tuple(chat.raw(index) for index in range(len(chat.messages)))


def dumped(*messages: Message) -> tuple[bytes, ...]:
    """Messages as the client of these tests writes them."""
    return tuple(json.dumps(message, ensure_ascii=False).encode() for message in messages)


def size(raw: tuple[bytes, ...], **fields: Any) -> int:
    """Tokens of a request with these messages."""
    return total(MODEL, [json.loads(message) for message in raw], **fields)
