"""A server with a real model as upstream, where TRIMTAB_LLM_URL names one (http://127.0.0.1:8081, without /v1).

Its window has to be in its `/props` or `/v1/models`, as with llama.cpp and vLLM, and at most 2,048 tokens.
"""

import asyncio
import os
import sys
from pathlib import Path

import httpx2
import pytest

from tests.clients.driving import TALK, launched, written
from tests.clients.matrix import HERE
from tests.fakes.upstream import FakeUpstream  # noqa: F401 - what takes its place in the other tests
from tests.proxy.counted import total
from tests.proxy.replicas import Replica

URL = os.environ.get("TRIMTAB_LLM_URL", "").rstrip("/")
MODEL = "a-local-model"
PATIENCE_S = 1200
pytestmark = pytest.mark.skipif(not URL, reason="TRIMTAB_LLM_URL names no model server")
QUESTIONS = 2 * len(TALK["questions"])


@pytest.fixture(scope="module")
def window() -> int:
    """What the server itself says that its model takes."""
    with httpx2.Client(base_url=URL, trust_env=False, timeout=30) as client:
        answer = client.get("/props")
        if answer.status_code == 200:
            return int(answer.json()["default_generation_settings"]["n_ctx"])
        return int(client.get("/v1/models").json()["data"][0]["max_model_len"])


@pytest.fixture(scope="module")
def talk(window: int) -> dict[str, object]:
    """A conversation of more tokens than the window."""
    told = {**TALK, "model": MODEL}
    messages = [{"role": "user", "content": question} for question in TALK["questions"] * 2]
    assert total("gpt-4o", messages) > 1.1 * window, "a smaller window, please: N_CTX"
    return told


def test_it_refuses_what_is_too_long_by_itself(talk: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"exceed|context"):
        launched(
            [sys.executable, HERE / "python" / "openai_chat.py", "served"], f"{URL}/v1", talk, tmp_path, PATIENCE_S
        )


def test_the_same_conversation_goes_on_through_the_proxy(talk: dict[str, object], window: int, tmp_path: Path) -> None:
    proxy = Replica(tmp_path / "proxy", "embeddings: {backend: none}", upstream=URL, command=("--workers", "1"))
    try:
        asyncio.run(proxy.start())
        client = [sys.executable, HERE / "python" / "openai_chat.py", "served"]
        told = launched(client, f"http://127.0.0.1:{proxy.port}/v1", talk, tmp_path, PATIENCE_S)
    finally:
        proxy.stop()
    records = [record for record in written(proxy) if record["event"] == "decision"]
    counted = [
        (record["tokens_after"], record["usage"]["prompt_tokens"]) for record in records if record["tokens_after"]
    ]

    assert len(told) == QUESTIONS
    assert {record["status"] for record in records} == {200}
    windows = [record["window"] for record in records]
    assert set(windows[windows.index(window) :]) == {window}, "what the server said, from when it had answered"
    assert set(windows[: windows.index(window)]) <= {"unknown"}
    assert [record for record in records if record["slots_evicted"]]
    assert max(really for _, really in counted) < window
    near = sorted(abs(ours / really - 1) for ours, really in counted[len(counted) // 2 :])
    assert near[len(near) // 2] < 0.1, "the count of an unknown tokenizer follows the server's own"
