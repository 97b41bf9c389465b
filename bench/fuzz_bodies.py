"""Request bodies grown from valid ones: by message, by field, by byte. One seed makes one case, always the same."""

import gzip
import json
import random
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from policies import registry

Message = dict[str, Any]
WORDS = [
    "tide",
    "berth",
    "crane",
    "码头",
    "pilot",
    "🚢",
    "cargo",
    "e\u0301",
    "ledger",
    "<|endoftext|>",
    "naïve",
    "\u202e",
    "1234567",
]
SIZES = [4, 16, 16, 16, 40, 150]  # words: most are short, and windows small, so that many cases are tried
ROLES = ["system", "developer", "user", "assistant", "tool", "function", "robot", "", None, 7]
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x",
    [],
    {},
    [None],
    {"type": "text"},
    [{"type": "text", "text": None}],
]
ODD += [[{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}], [{"type": "?"}], [[[[]]]]]
LIMITS = [
    "max_tokens",
    "max_completion_tokens",
    "n",
    "tools",
    "functions",
    "tool_choice",
    "response_format",
    "model",
    "stream",
]
MODELS = ["gpt-4o", "gpt-4", "o3", "claude-3-5-sonnet", "llama3", "some/model:unknown", ""]
FRAGMENTS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b"null",
    b'"role"',
    b'"messages":',
    b"\\ud83d",
    b"\xff",
    b"\0",
    b"1e999",
]
FRAGMENTS += [b"[" * 600, b"9" * 400, b" " * 300, b"//", b"NaN", b"\xef\xbb\xbf", b'"messages":[],']


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request, and what may be sent after it in the same conversation; `route` is a number."""

    route: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    more: tuple[bytes, ...] = field(default=())


def case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    request = _request(rng)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
        _damage(rng, request)
    headers = _headers(rng)
    body = _bytes(rng, request)
    more: tuple[bytes, ...] = ()
    if rng.random() < 0.2 and isinstance(request.get("messages"), list):
        request["messages"] = [*request["messages"], {"role": "assistant", "content": _text(rng, 9)}]
        request["messages"].append({"role": "user", "content": _text(rng, 40)})
        more = (_bytes(rng, request),)
    elif rng.random() < 0.3:
        for _ in range(rng.randint(1, 4)):
            body = _bitten(rng, body)
        if rng.random() < 0.1:
            headers = (*headers, ("content-encoding", rng.choice(["gzip", "br", "deflate", "zstd", "?", "gzip, br"])))
    elif rng.random() < 0.05:
        packed = gzip.compress(body, 1)
        body = packed if rng.random() < 0.8 else _bitten(rng, packed)
        headers = (*headers, ("content-encoding", "gzip"))
    return Case(route=rng.getrandbits(16), body=body, headers=headers, more=more)


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, words)))


def _request(rng: random.Random) -> dict[str, Any]:
    messages: list[Message] = []
    if rng.random() < 0.8:
        messages.append({"role": rng.choice(["system", "developer"]), "content": _text(rng, 30)})
    size = rng.choice(SIZES)
    for _ in range(rng.choice([0, 1, 2, 4, 8, 16, 30])):
        messages += _turn(rng, size)
    if rng.random() < 0.8:
        messages.append({"role": "user", "content": _text(rng, size)})
    request: dict[str, Any] = {"model": rng.choice(MODELS[:2] if rng.random() < 0.7 else MODELS), "messages": messages}
    if rng.random() < 0.3:
        request["tools"] = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    if rng.random() < 0.3:
        request[rng.choice(["max_tokens", "max_completion_tokens"])] = rng.choice([0, 1, 50, 4096, 10**9])
    if rng.random() < 0.3:
        request = dict(rng.sample(list(request.items()), len(request)))
    return request


def _turn(rng: random.Random, size: int) -> list[Message]:
    kind = rng.random()
    if kind < 0.55:
        return [{"role": "user", "content": _text(rng, size)}, {"role": "assistant", "content": _text(rng, size)}]
    if kind < 0.65:
        parts = [
            {"type": "text", "text": _text(rng, size)},
            {"type": "image_url", "image_url": {"url": "https://x.test/a"}},
        ]
        return [{"role": "user", "content": parts}, {"role": "assistant", "content": _text(rng, size), "refusal": None}]
    if kind < 0.72:
        called = {"name": "look_up", "arguments": "{}"}
        answer = {"role": "function", "name": "look_up", "content": _text(rng, size)}
        return [{"role": "assistant", "content": None, "function_call": called}, answer]
    ids = [f"call_{rng.randint(0, 5)}" for _ in range(rng.randint(1, 3))]
    calls = [{"id": i, "type": "function", "function": {"name": "look_up", "arguments": '{"a": 1}'}} for i in ids]
    results = [{"role": "tool", "tool_call_id": i, "content": _text(rng, size * 2)} for i in ids]
    return [{"role": "assistant", "content": rng.choice([None, "", "hm"]), "tool_calls": calls}, *results]


def _damage(rng: random.Random, request: dict[str, Any]) -> None:
    """One change to the request: a message gone, doubled, moved or odd, or an odd field."""
    messages = request.get("messages")
    how = rng.randint(0, 9)
    if how > 6 or not isinstance(messages, list) or not messages:
        request[rng.choice(LIMITS if how < 9 else ["messages", "\u0000", "metadata"])] = deepcopy(rng.choice(ODD))
        return
    at = rng.randrange(len(messages))
    if how == 0:
        del messages[at]
    elif how == 1:
        messages.insert(rng.randrange(len(messages)), deepcopy(messages[at]))
    elif how == 2:
        rng.shuffle(messages)
    elif how == 3:
        messages[at] = deepcopy(rng.choice(ODD))
    elif isinstance(messages[at], dict):
        key = rng.choice(
            ["role", "content", "tool_calls", "tool_call_id", "name", "function_call", "x", "cache_control"]
        )
        messages[at] = {**messages[at], key: deepcopy(rng.choice(ROLES if key == "role" else ODD))}


def _bytes(rng: random.Random, request: dict[str, Any]) -> bytes:
    separators = rng.choice([(",", ":"), (", ", ": ")])
    text = json.dumps(
        request, ensure_ascii=rng.random() < 0.5, separators=separators, indent=rng.choice([None] * 9 + [1])
    )
    return text.encode("utf-8", "surrogatepass")


def _bitten(rng: random.Random, body: bytes) -> bytes:
    at, size = rng.randint(0, len(body)), rng.choice([0, 0, 1, 3, 40])
    how = rng.random()
    middle = (
        rng.choice(FRAGMENTS) if how < 0.6 else rng.randbytes(rng.randint(0, 4)) if how < 0.9 else body[at : at + 200]
    )
    return body[:at] + middle + body[at + size :] if how < 0.97 else body[:at]


def _headers(rng: random.Random) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    if rng.random() < 0.1:
        found.append(("x-trimtab-pin", rng.choice(["0", "-1", "0,1,-2", "99999", "x", "", ",", "1e3"])))
    if rng.random() < 0.1:
        found.append(("x-trimtab-budget", rng.choice(["1", "50", "400", "0", "-1", "9" * 30])))
    if rng.random() < 0.1:
        found.append(("x-trimtab-policy", rng.choice([*registry.names(), "nope", ""])))
    if rng.random() < 0.03:
        found.append(("x-trimtab-bypass", "1"))
    return tuple(found)
