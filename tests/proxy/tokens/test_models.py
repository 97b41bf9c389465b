import re

import pytest

from proxy.tokens import models
from proxy.tokens.models import Family, Tokenizer


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("gpt-4o", 128_000),
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("GPT-4O", 128_000),
        ("openai/gpt-4.1-mini", 1_047_576),
        ("azure/gpt-4o", 128_000),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc123", 128_000),
        ("gpt-4", 8_192),
        ("gpt-4-0613", 8_192),
        ("gpt-4-turbo-2024-04-09", 128_000),
        ("gpt-4-0125-preview", 128_000),
        ("gpt-3.5-turbo-0125", 16_385),
        ("gpt-5", 272_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.1-codex-mini", 272_000),
        ("gpt-5.4-2026-03-05", 922_000),
        ("gpt-5.4-mini", 272_000),
        ("o1-mini", 128_000),
        ("o3-2025-04-16", 200_000),
        ("o4-mini", 200_000),
        ("openai/gpt-oss-120b:free", 131_072),
        ("anthropic/claude-3.5-sonnet:beta", 200_000),
        ("claude-sonnet-4-20250514", 200_000),
        ("claude-3-5-sonnet@20240620", 200_000),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", 200_000),
        ("claude-opus-4-6", 1_000_000),
        ("models/gemini-2.5-pro", 1_000_000),
        ("google/gemma-3-27b-it:free", 131_072),
        ("mistralai/mistral-7b-instruct-v0.3", 32_768),
        ("mistral-large-latest", 131_072),
        ("deepseek/deepseek-v3.2", 128_000),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("meta-llama/Llama-3.3-70B-Instruct", 131_072),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", 131_072),
        ("meta.llama3-70b-instruct-v1:0", 8_192),
        ("moonshotai/Kimi-K2-Instruct-0905", 262_144),
        ("zai-org/GLM-4.6", 200_000),
        ("grok-4-fast-reasoning", 2_000_000),
        ("command-r-plus-08-2024", 128_000),
    ],
)
def test_a_window_is_found_whatever_stands_around_the_name(model: str, size: int) -> None:
    assert models.window(model) == size


@pytest.mark.parametrize("model", [None, "", "gpt", "gpt-4-by-somebody", "my-deployment", "llama3.1:8b", "qwen3:14b"])
def test_a_window_that_nobody_knows_is_none(model: str | None) -> None:
    """An Ollama tag among them: there the server's num_ctx decides, not the model."""
    assert models.window(model) is None


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ("gpt-4o", Tokenizer("o200k_base", exact=True)),
        ("gpt-4.1", Tokenizer("o200k_base", exact=True)),
        ("gpt-4.5-preview", Tokenizer("o200k_base", exact=True)),
        ("chatgpt-4o-latest", Tokenizer("o200k_base", exact=True)),
        ("o3-mini", Tokenizer("o200k_base", exact=True)),
        ("gpt-5-nano", Tokenizer("o200k_base", exact=True)),
        ("gpt-4", Tokenizer("cl100k_base", exact=True)),
        ("gpt-4-turbo", Tokenizer("cl100k_base", exact=True)),
        ("gpt-35-turbo", Tokenizer("cl100k_base", exact=True)),
        ("openai/gpt-3.5-turbo", Tokenizer("cl100k_base", exact=True)),
        ("gpt-oss-20b", Tokenizer("o200k_harmony", exact=True)),
        ("llama-3.1-8b-instruct", Tokenizer("cl100k_base", exact=False)),
        ("claude-3-haiku", Tokenizer("o200k_base", exact=False)),
        (None, Tokenizer("o200k_base", exact=False)),
    ],
)
def test_the_encoding_is_the_models_own_or_the_nearest(model: str | None, tokenizer: Tokenizer) -> None:
    assert models.encoding(model) == tokenizer


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("deepseek-r1-distill-llama-70b", Family.LLAMA),
        ("deepseek-r1-distill-qwen-32b", Family.QWEN),
        ("nousresearch/hermes-3-llama-3.1-405b", Family.LLAMA),
        ("open-mixtral-8x7b", Family.MISTRAL),
        ("o365-helper", Family.OTHER),
        ("llama3.1:8b", Family.LLAMA),
        (None, Family.OTHER),
    ],
)
def test_families(model: str | None, family: Family) -> None:
    assert models.family(model) is family


def test_no_row_is_hidden_behind_an_earlier_one() -> None:
    """A glob read as a name must be caught by itself first: else the order is wrong, or the row is dead."""
    for glob, size in models.WINDOWS:
        name = re.sub(r"\[(.)[^]]*\]", r"\1", glob.replace("*", "").replace("?", "-"))
        assert models.window(name) == size, glob
