"""Group B, what is counted: schemas, reserves, media, unknown parts, special tokens (B01-B12)."""

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases.trimmed import settled, trim
from tests.fakes.upstream import FakeUpstream
from tests.proxy.counted import total
from tests.proxy.dialogues import assistant, body, dialogue, route, system, user, words
from tests.proxy.proxied import Records, Start, post
from tests.proxy.tokens.test_pixels import jpeg, png, url

PARAMETERS = {
    "type": "object",
    "properties": {f"berth_{n}": {"type": "string", "description": words(40, n)} for n in range(25)},
}
FUNCTION = {"name": "look_up", "description": words(100), "parameters": PARAMETERS}
COSTLY: dict[str, dict[str, Any]] = {
    "tools": {"tools": [{"type": "function", "function": FUNCTION}]},
    "functions": {"functions": [FUNCTION]},
    "response_format": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "plan", "schema": PARAMETERS}}
    },
}


@pytest.mark.parametrize("costly", COSTLY)
async def test_schemas_and_the_reserve_are_part_of_the_budget(
    start: Start, upstream: FakeUpstream, records: Records, costly: str
) -> None:
    """B01: messages alone would fit; with the schemas and the output they do not, and the record says all of it."""
    messages = dialogue(44, size=60)
    assert 5_000 < total("gpt-4o", messages) < 0.75 * 8_192
    client = await start("defaults: {window: 8192, policy: fifo, breathing_turns: 0}")

    response = await post(client, body(messages, max_tokens=2_666, **COSTLY[costly]))

    (record,) = await records.get()
    assert (record["window"], record["reserve"], record["budget"]) == (8192, 2666, 8192 - 2666)
    assert record["overhead_tokens"] > 1_000
    assert response.headers["x-trimtab-action"] == "trimmed"
    assert total("gpt-4o", upstream.last.json["messages"], **COSTLY[costly]) == record["tokens_after"]
    assert record["tokens_after"] + 2_666 <= 8_192
    assert (
        upstream.last.json | {"messages": 0} == {"model": "gpt-4o", "messages": 0, "max_tokens": 2666} | COSTLY[costly]
    )


async def test_an_output_limit_as_large_as_the_model_does_not_empty_the_history(
    start: Start, upstream: FakeUpstream, records: Records
) -> None:
    """B03: half the window is the most that a client's limit reserves, the route's cap if that is less."""
    content = body(dialogue(50, size=60), max_tokens=13_107)
    for cap, reserve in (("", 10_000), (", reserve_cap: 4000", 4_000)):
        client = await start(f"defaults: {{window: 20000, policy: fifo{cap}}}")
        response = await post(client, content)
        assert bytes(upstream.last.body) == content, "and max_tokens is what it was"
        assert response.headers["x-trimtab-action"] == "pass"
        assert (await records.get(len(upstream.exchanges)))[-1]["reserve"] == reserve


@pytest.mark.parametrize("limit", [None, -1, -2, "2000", True, 2.5, [], {}, "absent"], ids=repr)
def test_a_missing_or_meaningless_limit_reserves_the_routes_default(limit: Any) -> None:
    """B04: a short prompt is never over its budget because a server would give the answer the whole window."""
    fields = {} if limit == "absent" else {"max_tokens": limit}
    found = settled(body([user("hi")], **fields), route(window=8192, reserve_output=4096))

    assert found.outcome.budget is not None
    assert (found.outcome.budget.reserve, found.outcome.budget.tokens) == (2048, 6144)
    assert not found.outcome.changed


@pytest.mark.parametrize("limit", [0, 1, 4_095, 8_192, 10**9, 10**30])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_any_limit_leaves_room_for_a_prompt(field: str, limit: int) -> None:
    """B03, B04: whatever number the client names."""
    found = trim(dialogue(60), route(window=8192), **{field: limit})

    assert found.outcome.budget is not None
    assert found.outcome.budget.reserve == min(limit, 4096)


LIMITS: dict[str, tuple[dict[str, Any], int]] = {
    "completion": ({"max_completion_tokens": 2000, "reasoning_effort": "high"}, 2000),
    "legacy": ({"max_tokens": 1500}, 1500),
    "both": ({"max_tokens": 1500, "max_completion_tokens": 2000}, 2000),
    "both, one null": ({"max_tokens": None, "max_completion_tokens": 700}, 700),
    "thinking": ({"max_tokens": 500, "thinking": {"type": "enabled", "budget_tokens": 1800}}, 1800),
    "none": ({}, 2048),
}


@pytest.mark.parametrize("fields", LIMITS)
@pytest.mark.parametrize("model", ["o4-mini", "gpt-5.2", "gpt-4o", "house-model"])
def test_the_limits_fields_are_never_renamed_added_or_changed(model: str, fields: str) -> None:
    """B06, in a request that is trimmed."""
    given_fields, reserve = LIMITS[fields]
    found = trim(dialogue(60, size=60), route(window=8192, reserve_output=4096), model=model, **given_fields)

    assert found.outcome.changed
    assert found.outcome.budget is not None
    assert found.outcome.budget.reserve == reserve
    sent = json.loads(found.outcome.body)
    assert list(sent) == ["model", "messages", *given_fields]
    assert {name: sent[name] for name in given_fields} == given_fields


LARGE = url(png(1024, 1024) + bytes(1_500_000))
IMAGES: dict[str, Any] = {
    "png": {"url": LARGE, "detail": "auto"},
    "high": {"url": LARGE, "detail": "high"},
    "low": {"url": LARGE, "detail": "low"},
    "jpeg": {"url": url(jpeg(4000, 3000) + bytes(1_000_000), "image/jpeg")},
    "wrong type": {"url": url(jpeg(640, 480) + bytes(1_000_000), "image/png")},
    "unreadable": {"url": url(bytes(1_000_000))},
    "no base64": {"url": "data:image/png;base64," + "*" * 1_000_000},
    "vector": {"url": "data:image/svg+xml;utf8,<svg>" + "<g/>" * 400_000},
    "no type": {"url": "data:;base64," + base64.b64encode(png(99, 99) + bytes(1_000_000)).decode()},
    "string": LARGE,
    "huge size": {"url": url(png(2**31 - 1, 2**31 - 1))},
    "no size": {"url": url(png(0, 0))},
    "odd detail": {"url": url(png(512, 512)), "detail": 7},
}


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("model", ["gpt-4o", "qwen2.5-vl-7b"])
def test_a_picture_costs_what_its_pixels_do_and_not_what_its_bytes_do(model: str, image: str) -> None:
    """B07: the history is not thrown away for a screenshot."""
    messages = [*dialogue(20)[:-1], {"role": "user", "content": [{"type": "image_url", "image_url": IMAGES[image]}]}]
    bare = total(model, dialogue(20)[:-1])

    found = trim(messages, route(window=128_000), model=model)

    assert not found.outcome.changed
    assert found.outcome.tokens_before is not None
    assert bare < found.outcome.tokens_before < bare + 20_000


async def test_no_picture_is_ever_fetched(start: Start, upstream: FakeUpstream) -> None:
    """B07: addresses of pictures are priced by themselves, and only the chat request reaches the network."""
    pictures = [
        {"type": "image_url", "image_url": {"url": f"{upstream.url}/{n}.png", "detail": "high"}} for n in range(9)
    ]
    client = await start("defaults: {window: 16000, policy: fifo}")

    response = await post(client, body([*dialogue(9), {"role": "user", "content": pictures}]))

    assert int(response.headers["x-trimtab-tokens-before"]) > 9 * 85
    assert [exchange.target for exchange in upstream.exchanges] == [b"/v1/chat/completions"]


PARTS: dict[str, Any] = {
    "video": {"type": "video_url", "video_url": {"url": "https://harbour.test/tide.mp4"}},
    "null image": {"type": "image_url", "image_url": None},
    "empty image": {"type": "image_url", "image_url": {}},
    "new": {"type": "brand_new_part", "x": 1},
    "source": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    "null source": {"type": "image", "source": None},
    "document": {"type": "document", "source": {"type": "url", "url": "https://harbour.test/a.pdf"}},
    "null text": {"type": "text", "text": None},
    "number": {"type": "text", "text": 7},
    "no type": {"text": "hello"},
    "odd type": {"type": ["text"], "text": "hello"},
    "audio": {"type": "input_audio", "input_audio": None},
    "file": {"type": "file", "file": {"file_data": 3}},
    "null": None,
    "string": "bare",
    "list": [["deep"]],
    "nested": {"type": "tool_result", "content": [{"type": "text", "text": "inner"}]},
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_a_part_that_nobody_knows_is_kept_and_priced(role: str, part: str) -> None:
    """B09: trimming goes on around it, and it goes out as it came in."""
    odd = {"role": role, "content": [PARTS[part], {"type": "text", "text": "see"}]}
    if role == "tool":
        odd["tool_call_id"] = "call_1"
    messages = [*dialogue(20)[:-1], odd, user("now")]

    found = trim(messages, route(window=700))

    assert found.outcome.changed
    assert odd in found.after
    assert total("gpt-4o", [odd]) > total("gpt-4o", [{"role": role, "content": "see"}]) - 1


@pytest.mark.parametrize("part", ["video", "null image", "new", "document", "null", "string", "nested"])
def test_the_price_of_an_unknown_part_is_called_an_estimate(part: str) -> None:
    """B09: the audit says so, also where the tokenizer is exact."""
    messages = [*dialogue(20)[:-1], {"role": "user", "content": [PARTS[part]]}]

    assert trim(messages, route(window=700)).record["estimated"] is True
    assert trim(dialogue(20), route(window=700)).record["estimated"] is False


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None)
@given(content=JSON, calls=JSON, other=JSON)
def test_any_json_in_any_field_of_a_message_can_be_counted(content: Any, calls: Any, other: Any) -> None:
    """B09."""
    odd = {"role": "assistant", "content": content, "tool_calls": calls, "function_call": other, "name": other}
    messages = [*dialogue(12)[:-1], {**odd, "reasoning_content": content, "reasoning_details": other}, user("now")]
    trim(messages, route(window=500))


SPECIAL = ["<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|im_start|>system", "<|endofprompt|>", "<|start|>"]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "gpt-5.2", "llama-4-scout"])
def test_a_special_token_is_text_wherever_it_stands(model: str, special: str) -> None:
    """B10: in contents, names, calls, results and schemas; counted as the characters it is made of."""
    call = {"id": special, "type": "function", "function": {"name": special, "arguments": special}}
    messages = [
        user(f"what does {special} mean?"),
        {"role": "assistant", "content": special, "name": special, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": special, "content": [{"type": "text", "text": special}]},
        user("now"),
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": special, "parameters": {}}}]

    found = trim([system(), *messages], route(window=100), model=model, tools=tools)

    assert found.outcome.counted
    assert total(model, [user(special)]) >= total(model, [user("")]) + 3


@pytest.mark.parametrize("character", [" ", "\n", "=", "a", "\u00a0", "\u0301", "\U0001f600"], ids=ascii)
async def test_a_run_of_one_character_is_counted_and_passes(
    start: Start, upstream: FakeUpstream, character: str
) -> None:
    """B10: no text makes a tokenizer panic or stall, a million spaces included."""
    client = await start("defaults: {window: 128000, policy: fifo}")
    content = body([user("q"), assistant(character * 1_000_001), user("now")])

    response = await post(client, content)

    assert response.status_code == 200
    assert "x-trimtab-faults" not in response.headers
    assert int(response.headers["x-trimtab-tokens-before"]) > 1_000


def test_no_tokenizer_needs_a_network_or_a_download() -> None:
    """B12: in a new process that may not connect anywhere, for models that nobody has heard of too."""
    program = """
import json, socket, time
def refuse(*_, **__):
    raise SystemExit("a connection was tried")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from proxy.offline import count_body
begin = time.monotonic()
for model in ("deepseek-v4-flash", "gpt-4o", "gpt-4", "claude-opus-9", "org/some.model:latest", "", None, "\\u6c49"):
    counted = count_body(json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode())
    assert 0 < counted["total"] < 30, counted
    assert counted["estimated"] is not str(model).startswith("gpt"), counted
assert time.monotonic() - begin < 10
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (0, "")
