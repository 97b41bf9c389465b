"""An upstream that answers by a script, in a thread of its own, and judges every chat request that reaches it.

The last message but instructions decides: a question is answered with words, `[slow]` in it with words that take their
time, `[fails]` with two errors before them, `[edit]` with a change to a file as coding agents take it; a task with
tools gets rounds of calls first; where a schema is asked for, its instance.
"""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.fakes.upstream import Exchange, FakeUpstream, running
from tests.proxy.counted import total
from tests.validator import INSTRUCTIONS, violations

Message = dict[str, Any]

ROUNDS = 14  # of calls that a task gets, the first of two calls
_SLOW_S, _SLOW_PIECES = 0.05, 400
EDIT = "Here it is.\n\nberths.txt\n```\n<<<<<<< SEARCH\n=======\nHalcyon: North Quay 7\n>>>>>>> REPLACE\n```\n"
_COUNTED = ("tools", "response_format")
_CALL_ID = re.compile(r"call_(\d+)_\d+")


def words(seed: int, count: int = 60) -> str:
    """`count` plain words, others for each seed."""
    pool = ("tide", "berth", "crane", "pilot", "cargo", "buoy", "anchor", "ledger", "quay", "signal", "hull", "tug")
    return " ".join(pool[(seed * 7 + i * (seed % 5 + 1)) % len(pool)] for i in range(count))


def reply(asked: str) -> str:
    """What is answered to a question: with everything in it that a client could take for something else."""
    seed = sum(asked.encode())
    return (
        f"Answer {seed}: {words(seed)}.\n\n"
        f'1. *One* "quoted" 水位 é 😀 \\n\n```python\nprint({{"n": {seed}}})\n```\n<b>Two</b>  &amp; three'
    )


class Scripted:
    """The script, and what was said by it. `wrong` is what an upstream would have refused; `sizes` are in tokens."""

    def __init__(self, fake: FakeUpstream) -> None:
        self._fake = fake
        self._failures: Counter[str] = Counter()
        self.said: list[Message] = []
        self.wrong: list[str] = []
        self.sizes: list[int] = []

    @property
    def url(self) -> str:
        return self._fake.url

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return self._fake.exchanges

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        path = exchange.target.split(b"?")[0]
        if path == b"/v1/chat/completions":
            await self._chat(exchange)
        elif path == b"/v1/responses":
            await _answer(exchange, responses(exchange.json))
        elif path == b"/v1/models":
            await _answer(exchange, {"object": "list", "data": [{"id": "gpt-4o", "object": "model", "created": 1}]})
        else:
            await _answer(exchange, {"error": {"message": f"no such path: {path.decode()}"}}, 404)

    async def _chat(self, exchange: Exchange) -> None:
        asked = exchange.json
        self.wrong += violations(asked["messages"])
        size = total(asked["model"], asked["messages"], **{k: asked[k] for k in _COUNTED if asked.get(k)})
        self.sizes.append(size)
        usage = {"prompt_tokens": size, "completion_tokens": 100, "total_tokens": size + 100}
        text = _text(_last(asked["messages"]))
        if "[fails]" in text and self._failures[text] < 2:
            self._failures[text] += 1
            status = (429, 503)[self._failures[text] - 1]
            error = {"message": "not now", "type": "requests", "param": None, "code": "later"}
            await _answer(exchange, {"error": error}, status, ("retry-after-ms", "1"), ("retry-after", "0.001"))
            return
        message = _message(asked)
        self.said.append(message)
        if not asked.get("stream"):
            choice = {"index": 0, "message": {**message, "refusal": None}, "finish_reason": _reason(message)}
            await _answer(exchange, {**_head("chat.completion"), "choices": [choice], "usage": usage})
            return
        await exchange.start(200, ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
        for chunk in _chunks(message, usage if (asked.get("stream_options") or {}).get("include_usage") else None):
            await exchange.chunk(f"data: {json.dumps(chunk)}\n\n".encode())
            if "[slow]" in text:
                await asyncio.sleep(_SLOW_S)
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.chunk(b"")


@contextmanager
def scripted() -> Iterator[Scripted]:
    """The upstream at work until the context ends."""
    ready: list[Scripted] = []
    started = threading.Event()
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with running() as fake:
            script = Scripted(fake)
            fake.handler = script.handle
            ready.append(script)
            started.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="scripted upstream")
    thread.start()
    try:
        assert started.wait(10)
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)
        loop.close()


def instance(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """The plainest value that a JSON schema allows."""
    root = root or schema
    if "$ref" in schema:
        *_, name = schema["$ref"].split("/")
        return instance((root.get("$defs") or root.get("definitions"))[name], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], root)
    kind = schema.get("type")
    if kind == "object":
        return {name: instance(each, root) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance(schema["items"], root)]
    return {"string": "North Quay", "integer": 7, "number": 7, "boolean": True}[str(kind)]


def responses(asked: Message) -> Message:
    """An answer of the other API, which the proxy hands through."""
    part = {"type": "output_text", "text": "From the other API.", "annotations": []}
    output = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}
    usage_details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    fixed = {"object": "response", "created_at": 1, "status": "completed", "error": None, "incomplete_details": None}
    rest = {"instructions": None, "metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {
        "id": "resp_1",
        "model": asked["model"],
        "output": [output],
        "usage": {**usage, **usage_details},
        **fixed,
        **rest,
    }


def _message(asked: Message) -> Message:
    last = _last(asked["messages"])
    tools = {tool["function"]["name"]: tool["function"] for tool in asked.get("tools") or ()}
    choice = asked.get("tool_choice")
    forced = choice["function"]["name"] if isinstance(choice, dict) else None
    if forced is None and choice == "required":
        forced = next((name for name in tools if name != "look_up"), None)
    if forced is not None:
        return _calls([(forced, instance(tools[forced]["parameters"]), "call_99_0")])
    if "look_up" in tools and (number := _round(asked["messages"])) < ROUNDS:
        twice = (0, 1) if number == 0 else (0,)
        return _calls([("look_up", {"berth": number * 2 + i}, f"call_{number}_{i}") for i in twice])
    form = asked.get("response_format") or {}
    if form.get("type") == "json_schema":
        return {"role": "assistant", "content": json.dumps(instance(form["json_schema"]["schema"]))}
    text = EDIT if "[edit]" in _text(last) else reply(_text(last))
    if "[slow]" in _text(last):
        text = " ".join(words(i, 1) for i in range(_SLOW_PIECES))
    return {"role": "assistant", "content": text}


def _calls(wanted: Sequence[tuple[str, Any, str]]) -> Message:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments, call_id in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _round(messages: Sequence[Message]) -> int:
    """How many rounds of calls there were since the last question."""
    latest = -1
    for message in messages:
        if message["role"] == "user":
            latest = -1
        for call in message.get("tool_calls") or ():
            if found := _CALL_ID.fullmatch(call["id"]):
                latest = int(found[1])
    return latest + 1


def _last(messages: Sequence[Message]) -> Message:
    """The last message that says something new: some agents put a reminder of their rules behind it."""
    return next(message for message in reversed(messages) if message["role"] not in INSTRUCTIONS)


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _chunks(message: Message, usage: Message | None) -> Iterator[Message]:
    head = _head("chat.completion.chunk")
    deltas: list[Message] = [{"role": "assistant", "content": "" if message["content"] is not None else None}]
    deltas += ({"content": piece} for piece in re.findall(r"\s*\S+\s*?", message["content"] or ""))
    for index, call in enumerate(message.get("tool_calls", ())):
        text = call["function"]["arguments"]
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [begun]})
        deltas += ({"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in (text[:5], text[5:]))
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _reason(message)}]}
    if usage:
        yield {**head, "choices": [], "usage": usage}


def _reason(message: Message) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _head(kind: str) -> Message:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "gpt-4o"}


async def _answer(exchange: Exchange, value: Any, status: int = 200, *headers: tuple[str, str]) -> None:
    await exchange.answer(json.dumps(value).encode(), status, ("Content-Type", "application/json"), *headers)
