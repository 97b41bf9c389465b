"""Group D, requests: codings, Azure, other endpoints, and the answers to them (D13, D16, D17, E13)."""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard

from tests.fakes.server import connected
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.proxy.dialogues import body, dialogue, user
from tests.proxy.proxied import Records, Start, post
from tests.validator import worsened

LARGE, SMALL = "defaults: {window: 128000}", "defaults: {window: 1000, reserve_output: 0, policy: fifo}"


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "gzip in members": ("gzip", lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:])),
    "gzip twice": ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "brotli": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
    "zstd in frames": ("zstd", lambda data: zstandard.compress(data[:99]) + zstandard.compress(data[99:])),
    "zstd over gzip": ("gzip, zstd", lambda data: zstandard.compress(gzip.compress(data))),
    "identity": ("identity", bytes),
}


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_request_is_read_and_stays_compressed_unless_it_is_trimmed(
    start: Start, upstream: FakeUpstream, coding: str
) -> None:
    """D13."""
    name, pack = CODINGS[coding]
    small, large = pack(body([user("q")])), pack(body(dialogue(20)))
    client = await start(SMALL)

    untouched = await post(client, small, **{"content-encoding": name})
    assert bytes(upstream.last.body) == small
    assert upstream.last.header("content-encoding") == name.encode()
    trimmed = await post(client, large, **{"content-encoding": name})
    assert upstream.last.header("content-encoding") is None
    assert worsened(dialogue(20), upstream.last.json["messages"]) == []

    assert (untouched.headers["x-trimtab-action"], trimmed.headers["x-trimtab-action"]) == ("pass", "trimmed")


BROKEN: dict[str, tuple[str, bytes]] = {
    "unknown": ("snappy", b"\x00\x01"),
    "unknown outside": ("gzip, snappy", b"\x00\x01"),
    "not gzip": ("gzip", body([user("q")])),
    "cut off": ("gzip", gzip.compress(body(dialogue(20)))[:-9]),
    "garbage behind zstd": ("zstd", zstandard.compress(body(dialogue(20))) + b"garbage"),
    "garbage behind gzip": ("gzip", gzip.compress(body(dialogue(20))) + b"garbage"),
    "empty": ("gzip", b""),
    "many": (", ".join(["gzip"] * 50), b"\x1f\x8b"),
    "odd name": ("gzip;q=1, \u00ff", b"\x1f\x8b"),
    "no zstd": ("zstd", b"\x28\xb5\x2f\xfd" + bytes(40)),
    "no brotli": ("br", b"\xff" * 40),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_what_cannot_be_unpacked_goes_through_as_it_came(
    start: Start, upstream: FakeUpstream, records: Records, broken: str
) -> None:
    """D13: the upstream may know better."""
    name, content = BROKEN[broken]
    client = await start(SMALL)
    response = await client.post(
        "/v1/chat/completions", content=content, headers=[(b"content-encoding", name.encode())]
    )

    assert response.status_code == 200
    assert bytes(upstream.last.body) == content
    assert upstream.last.header("content-encoding") == name.encode()
    assert response.headers["x-trimtab-action"] == "pass"


AZURE = b"/openai/deployments/berths-prod/chat/completions?api-version=2024-10-21&x=%2F"


@pytest.mark.parametrize("model", [{}, {"model": "gpt-4o"}, {"model": None}], ids=["no model", "model", "null"])
async def test_azure_paths_keep_path_query_and_key_and_name_the_model(
    start: Start, upstream: FakeUpstream, model: dict[str, Any]
) -> None:
    """D16: the deployment stands in for the model where routes are chosen."""
    client = await start(
        "routes:\n- {name: prod, match: {model: 'berths-*'}, window: 1000, reserve_output: 0, policy: fifo}\n"
        "- {name: other, match: {model: 'gpt-4o'}, window: 1000, reserve_output: 0, policy: lru}"
    )
    content = json.dumps({"messages": dialogue(20), **model}).encode()
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request("POST", AZURE, ("api-key", "k-1"), body=content)
        status, fields = await raw.head()

    assert status == 200
    assert dict(fields)[b"x-trimtab-policy"] == (b"lru" if model.get("model") else b"fifo")
    assert dict(fields)[b"x-trimtab-action"] == b"trimmed"
    assert upstream.last.target == AZURE
    assert upstream.last.header("api-key") == b"k-1"
    assert "model" not in upstream.last.json or upstream.last.json["model"] == model["model"]


OTHERS: dict[str, tuple[str, bytes, bytes, str]] = {
    "models": ("GET", b"/v1/models", b"", ""),
    "one model": ("GET", b"/v1/models/ft%3Agpt-4o%3Aorg", b"", ""),
    "embeddings": ("POST", b"/v1/embeddings", b'{"input": "x" , "model":"e"}', "application/json"),
    "completions": ("POST", b"/v1/completions", b'{"prompt":"%b"}' % (b"tide " * 3000), "application/json"),
    "responses": ("POST", b"/v1/responses", b'{"input":"%b"}' % (b"tide " * 3000), "application/json"),
    "audio": (
        "POST",
        b"/v1/audio/transcriptions",
        b"--b\r\n\r\n" + bytes(range(256)) * 800 + b"\r\n--b--",
        "multipart/form-data; boundary=b",
    ),
    "delete": ("DELETE", b"/v1/files/f-1", b"", ""),
    "head": ("HEAD", b"/v1/models", b"", ""),
    "options": ("OPTIONS", b"/v1/chat/completions", b"", ""),
    "chat by get": ("GET", b"/v1/chat/completions?limit=2", b"", ""),
    "chat by head": ("HEAD", b"/v1/chat/completions", b"", ""),
    "chat by put": ("PUT", b"/v1/chat/completions", body(dialogue(20)), "application/json"),
    "stored chat": ("POST", b"/v1/chat/completions/chatcmpl-1", b'{"metadata":{}}', "application/json"),
    "trailing slash": ("POST", b"/v1/chat/completions/", body(dialogue(20)), "application/json"),
    "own method": ("PURGE", b"/v1/cache", b"", ""),
    "other case": ("POST", b"/v1/Chat/Completions", body(dialogue(20)), "application/json"),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_whatever_is_no_chat_request_passes_untouched(start: Start, upstream: FakeUpstream, other: str) -> None:
    """D17: path, query, method and body."""
    method, target, content, kind = OTHERS[other]

    async def answer(exchange: Exchange) -> None:
        await exchange.start(200, ("Content-Length", "2"))
        await exchange.send(b"" if method == "HEAD" else b"ok")

    upstream.handler = answer
    client = await start(SMALL)
    async with connected(str(client.base_url).rstrip("/")) as raw:
        await raw.request(method, target, *([("content-type", kind)] if kind else []), body=content)
        status, _ = await raw.head()

    assert status == 200
    assert (upstream.last.method, upstream.last.target, bytes(upstream.last.body)) == (method, target, content)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 422, 429, 500, 502, 503, 529])
async def test_an_upstreams_refusal_is_relayed_once_with_its_fields(
    start: Start, upstream: FakeUpstream, records: Records, status: int
) -> None:
    """E13, E12: status, header fields and bytes; nothing but an overflow is ever tried again."""
    said = b"<html>\xff not even JSON</html>" if status >= 502 else b'{"error":{"message":"no","type":"t","code":null}}'
    fields = [
        ("Retry-After", "7"),
        ("retry-after-ms", "7000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-should-retry", "true"),
    ]

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(said, status, *fields)

    upstream.handler = refuse
    response = await post(await start(SMALL), body(dialogue(20)))

    assert (response.status_code, response.content) == (status, said)
    assert {name: response.headers[name] for name, _ in fields} == dict(fields)
    assert len(upstream.exchanges) == 1
    assert (await records.get())[0]["status"] == status
