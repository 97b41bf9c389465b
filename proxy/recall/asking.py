"""One question to a small chat model behind an upstream of the configuration, and its answer as text."""

from hashlib import blake2b

import msgspec

from proxy.errors import UpstreamError
from proxy.upstream import Reply, Upstream

LARGEST = 2**20  # bytes of an answer

_TARGET = b"/v1/chat/completions"
_HEADERS = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said


class _Answer(msgspec.Struct):
    choices: list[_Choice]


def fence(material: str) -> str:
    """A line to put around material that a model is to work on; nobody who writes it can know its mark."""
    return f"=== {blake2b(material.encode('utf-8', 'replace'), digest_size=8).hexdigest()} ==="


async def ask(upstream: Upstream, model: str | None, instructions: str, text: str, *, max_tokens: int) -> str:
    """What the model answers, with the key that its upstream is configured with.

    Raises UpstreamError where it does not, and ValueError for an answer that is none.
    """
    body = {
        "model": model,
        "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    reply = await upstream.send("POST", _TARGET, _HEADERS, msgspec.json.encode(body))
    try:
        if reply.status != 200:
            raise UpstreamError("upstream_refused", f"upstream '{upstream.name}' answered {reply.status}")
        answer = msgspec.json.decode(await _read(reply), type=_Answer)
    finally:
        await reply.aclose()
    said = (answer.choices[0].message.content or "").strip() if answer.choices else ""
    if not said:
        raise ValueError(f"upstream '{upstream.name}': the model answered nothing")
    return said


async def _read(reply: Reply) -> bytes:
    data = bytearray()
    async for chunk in reply:
        data += chunk
        if len(data) > LARGEST:
            raise ValueError(f"an answer of over {LARGEST} bytes")
    return bytes(data)
