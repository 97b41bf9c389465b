"""What is known about models by their names: context windows, families, tokenizers.

Two tables of globs, lower case, the first match wins; what stands in front of a name (a provider, a region, a path)
and behind it (a date, a variant) is taken off by `bare` first. Where a family's variants differ, the smaller window
is listed; where a model takes less input than its window, that limit is. What is not listed is unknown, and said so.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache


class Family(StrEnum):
    """Models that share a tokenizer, or nearly."""

    OPENAI = "openai"
    GPT_OSS = "gpt-oss"
    CLAUDE = "claude"
    GEMINI = "gemini"
    LLAMA = "llama"
    MISTRAL = "mistral"
    DEEPSEEK = "deepseek"
    QWEN = "qwen"
    KIMI = "kimi"
    GLM = "glm"
    GROK = "grok"
    COHERE = "cohere"
    OTHER = "other"


WINDOWS: tuple[tuple[str, int], ...] = (
    # OpenAI. From gpt-5 on, the input limit: the window less 128,000 that only the answer may use.
    ("gpt-3.5-turbo-instruct*", 4_096),
    ("gpt-3.5-turbo*", 16_385),
    ("gpt-35-turbo-16k*", 16_385),  # Azure spells it without the dot; its plain gpt-35-turbo may be either size
    ("gpt-4-32k*", 32_768),
    ("gpt-4-turbo*", 128_000),
    ("gpt-4-vision*", 128_000),
    ("gpt-4-1106*", 128_000),
    ("gpt-4-0125*", 128_000),
    ("gpt-4.1*", 1_047_576),
    ("gpt-4.5*", 128_000),
    ("gpt-4o*realtime*", 16_000),
    ("gpt-4o*transcribe*", 16_000),
    ("gpt-4o*", 128_000),
    ("chatgpt-4o*", 128_000),
    ("gpt-4", 8_192),
    ("gpt-4-0*", 8_192),
    ("gpt-5*-chat*", 128_000),
    ("gpt-5.3", 128_000),
    ("gpt-5.4-mini*", 272_000),
    ("gpt-5.4-nano*", 272_000),
    ("gpt-5.4*", 922_000),
    ("gpt-5.5*", 872_000),
    ("gpt-5.6-*", 922_000),
    ("gpt-5", 272_000),
    ("gpt-5-*", 272_000),
    ("gpt-5.[123]", 272_000),
    ("gpt-5.[123]-*", 272_000),
    ("gpt-6-*", 922_000),
    ("gpt-6.1-*", 922_000),
    ("gpt-audio*", 128_000),
    ("gpt-oss-*", 131_072),
    ("o1-mini*", 128_000),
    ("o1-preview*", 128_000),
    ("o1", 200_000),
    ("o1-*", 200_000),
    ("o3", 200_000),
    ("o3-*", 200_000),
    ("o4-mini*", 200_000),
    ("codex-mini*", 200_000),
    ("computer-use-preview*", 8_192),
    # Anthropic. A million needs a beta header for the Sonnets up to 4.5: they are listed without it.
    ("claude-instant*", 100_000),
    ("claude-2.0*", 100_000),
    ("claude-2*", 200_000),
    ("claude-3*", 200_000),
    ("claude-haiku-4?5*", 200_000),
    ("claude-4?5-*", 200_000),
    ("claude-opus-4?[678]*", 1_000_000),
    ("claude-sonnet-4?6*", 1_000_000),
    ("claude-opus-4*", 200_000),
    ("claude-sonnet-4*", 200_000),
    ("claude-4-*", 200_000),
    ("claude-opus-5*", 1_000_000),
    ("claude-sonnet-5*", 1_000_000),
    ("claude-haiku-5*", 1_000_000),
    ("claude-fable-5*", 1_000_000),
    ("claude-mythos-5*", 1_000_000),
    # Google
    ("gemini-1.0*", 32_768),
    ("gemini-pro", 32_768),
    ("gemini-*-tts*", 8_192),
    ("gemini-*-live*", 131_072),
    ("gemini-2.5-flash-image*", 32_768),
    ("gemini-*-image*", 65_536),
    ("gemini-1.5*", 1_000_000),
    ("gemini-flash-1.5*", 1_000_000),  # as OpenRouter spelt them
    ("gemini-pro-1.5*", 1_000_000),
    ("gemini-2*", 1_000_000),
    ("gemini-3*", 1_000_000),
    ("gemini-4-argon*", 1_048_576),
    ("gemma-3-1b*", 32_768),
    ("gemma-3n*", 32_768),
    ("gemma-3-*", 131_072),
    ("gemma-4-*", 131_072),
    ("gemma-2-*", 8_192),
    ("gemma-[27]b*", 8_192),
    # Mistral
    ("codestral-mamba*", 256_000),
    ("codestral-2405*", 32_768),
    ("codestral*", 256_000),
    ("devstral-*2512*", 256_000),
    ("devstral*", 131_072),
    ("ministral-14b-2512*", 262_144),
    ("ministral-8b-2512*", 262_144),
    ("ministral*", 131_072),
    ("magistral-*2506*", 40_000),
    ("magistral*", 131_072),
    ("mistral-large-2402*", 32_000),
    ("mistral-large-4*", 1_048_576),
    ("mistral-large-2512*", 256_000),
    ("mistral-large*", 131_072),
    ("mistral-medium-3?5*", 262_144),
    ("mistral-medium-3*", 131_072),
    ("mistral-medium-25*", 131_072),
    ("mistral-medium-latest", 131_072),
    ("mistral-medium*", 32_000),
    ("mistral-small-2603*", 262_144),
    ("mistral-small-2402*", 32_000),
    ("mistral-small-2409*", 32_000),
    ("mistral-small-24b*", 32_768),
    ("mistral-small*", 131_072),
    ("mistral-nemo*", 131_072),
    ("open-mistral-nemo*", 131_072),
    ("mistral-7b*", 32_768),
    ("open-mistral-7b*", 32_768),
    ("open-mixtral-8x7b*", 32_768),
    ("mixtral-8x7b*", 32_768),
    ("open-mixtral-8x22b*", 65_536),
    ("mixtral-8x22b*", 65_536),
    ("pixtral*", 128_000),
    # DeepSeek: hosts differ most here; those of the first-party service, or less
    ("deepseek-r1-distill*", 32_768),
    ("deepseek-flash", 1_000_000),
    ("deepseek-v4*", 1_000_000),
    ("deepseek-v3.[12]*", 128_000),
    ("deepseek-v3p[12]*", 128_000),
    ("deepseek-v3*", 64_000),
    ("deepseek_v3*", 64_000),
    ("deepseek-r1*", 64_000),
    ("deepseek-chat*", 64_000),
    ("deepseek-reasoner*", 64_000),
    # Qwen: open weights without stretching the window by YaRN
    ("qwen-turbo*", 131_072),
    ("qwen-plus*", 131_072),
    ("qwen-max*", 32_768),
    ("qwen3-coder*", 262_144),
    ("qwen3-next*", 262_144),
    ("qwen3-max*", 262_144),
    ("qwen3-*-2507*", 262_144),
    ("qwen3-vl-235b*", 131_072),
    ("qwen3-vl*", 131_072),
    ("qwen3.5-*", 262_144),
    ("qwen3.6-plus*", 1_000_000),
    ("qwen3.6-*", 262_144),
    ("qwen3.7-max*", 1_000_000),
    ("qwen3.7-plus*", 262_144),
    ("qwen3.8-max*", 1_000_000),
    ("qwen3.8-flash*", 1_000_000),
    ("qwen3-*", 32_768),
    ("qwen-3-*", 32_768),
    ("qwen2*", 32_768),
    ("qwen-2*", 32_768),
    ("qwq-32b*", 32_768),
    # Meta
    ("llama-4-scout*", 131_072),
    ("llama-4-maverick*", 131_072),
    ("llama4-scout*", 131_072),
    ("llama4-maverick*", 131_072),
    ("*llama-3[.p-][123]-*", 131_072),
    ("*llama-v3p[123]-*", 131_072),
    ("*llama3[.-][123]-*", 131_072),
    ("*llama-3-*", 8_192),
    ("*llama3-*", 8_192),
    ("llama-2-*", 4_096),
    ("muse-spark-1*", 1_048_576),
    # Moonshot
    ("moonshot-v1-8k*", 8_192),
    ("moonshot-v1-32k*", 32_768),
    ("moonshot-v1-128k*", 131_072),
    ("kimi-k2-0711*", 131_072),
    ("kimi-k2-instruct", 131_072),
    ("kimi-k2-0905*", 262_144),
    ("kimi-k2-instruct-0905*", 262_144),
    ("kimi-k2-thinking*", 262_144),
    ("kimi-k2-turbo*", 262_144),
    ("kimi-k2[.p][567]*", 262_144),
    ("kimi-k2", 131_072),
    ("kimi-k3*", 1_000_000),
    # Zhipu
    ("glm-4.5v*", 65_536),
    ("glm-4.6v*", 128_000),
    ("glm-4.5*", 128_000),
    ("glm-4.6*", 200_000),
    ("glm-4[.p]7*", 200_000),
    ("glm-5", 200_000),
    ("glm-5.1*", 200_000),
    ("glm-5[.p][23]*", 1_000_000),
    # xAI
    ("grok-2*", 32_768),
    ("grok-3*", 131_072),
    ("grok-code*", 256_000),
    ("grok-build*", 256_000),
    ("grok-4-fast*", 2_000_000),
    ("grok-4[-.]1-fast*", 2_000_000),
    ("grok-4.20*", 1_000_000),
    ("grok-4.3*", 1_000_000),
    ("grok-4.[567]*", 500_000),
    ("grok-4", 256_000),
    ("grok-4-0709*", 256_000),
    # Cohere
    ("command-a*", 256_000),
    ("command-r*", 128_000),
    ("command-light*", 4_096),
    ("command", 4_096),
    ("c4ai-aya-expanse-8b*", 8_192),
    ("c4ai-aya-expanse-32b*", 128_000),
    # Others
    ("minimax-m2*", 196_608),
    ("minimax-m3*", 512_000),
    ("nova-micro*", 128_000),
    ("nova-lite*", 300_000),
    ("nova-pro*", 300_000),
    ("phi-4", 16_384),
)
"""Context windows in tokens, prompt and answer together unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """How a model's text is counted: with which encoding, and whether that encoding is the model's own."""

    encoding: str
    exact: bool


_FAMILIES: tuple[tuple[str, Family], ...] = (
    ("gpt-oss*", Family.GPT_OSS),
    ("gpt-*", Family.OPENAI),
    ("chatgpt-*", Family.OPENAI),
    ("o[134]", Family.OPENAI),
    ("o[134]-*", Family.OPENAI),
    ("codex-*", Family.OPENAI),
    ("computer-use-preview*", Family.OPENAI),
    ("claude*", Family.CLAUDE),
    ("gemini*", Family.GEMINI),
    ("gemma*", Family.GEMINI),
    ("deepseek-r1-distill-llama*", Family.LLAMA),
    ("deepseek-r1-distill-qwen*", Family.QWEN),
    ("*deepseek*", Family.DEEPSEEK),
    ("*mi[sx]tral*", Family.MISTRAL),
    ("codestral*", Family.MISTRAL),
    ("devstral*", Family.MISTRAL),
    ("magistral*", Family.MISTRAL),
    ("ministral*", Family.MISTRAL),
    ("pixtral*", Family.MISTRAL),
    ("*llama*", Family.LLAMA),
    ("qwen*", Family.QWEN),
    ("qwq*", Family.QWEN),
    ("kimi*", Family.KIMI),
    ("moonshot*", Family.KIMI),
    ("*glm-*", Family.GLM),
    ("grok*", Family.GROK),
    ("command*", Family.COHERE),
    ("c4ai*", Family.COHERE),
)

_ENCODINGS: dict[Family, Tokenizer] = {
    Family.OPENAI: Tokenizer("o200k_base", exact=True),
    Family.GPT_OSS: Tokenizer("o200k_harmony", exact=True),
    Family.LLAMA: Tokenizer("cl100k_base", exact=False),  # Llama 3 extends it
}
_ESTIMATE = Tokenizer("o200k_base", exact=False)
_CL100K_MODELS = re.compile(r"gpt-3\.?5|gpt-4(?![.o\d])")

# What OpenRouter puts behind a colon, and Bedrock's version numbers. Other tags (llama3.1:8b) are Ollama's, which
# serves whatever num_ctx says, 4,096 unless set: no window is known for those.
_VARIANT = re.compile(r":(?:free|beta|nitro|floor|online|extended|thinking|exacto|\d+)$")
_VENDOR = re.compile(
    r"^(?:[a-z-]+\.)?(?:amazon|anthropic|cohere|deepseek|google|meta|mistral|moonshot|moonshotai|openai|qwen|zai)\."
)


def bare(model: str) -> str:
    """`model` in lower case without provider, region, path, fine-tune and variant: what the tables are matched with."""
    name = model.strip().lower()
    if name.startswith("ft:"):
        name = name.split(":")[1]
    name = _VARIANT.sub("", name)
    name = name.rsplit("/", 1)[-1]
    name = _VENDOR.sub("", name)
    return name.split("@", 1)[0]


@lru_cache(maxsize=1024)
def window(model: str | None) -> int | None:
    """The context window of `model` in tokens, or None where nobody here knows it."""
    name = bare(model or "")
    for glob, size in WINDOWS:
        if fnmatchcase(name, glob):
            return size
    return None


@lru_cache(maxsize=1024)
def family(model: str | None) -> Family:
    """The family that `model` belongs to, OTHER where it is unknown."""
    name = bare(model or "")
    for glob, kind in _FAMILIES:
        if fnmatchcase(name, glob):
            return kind
    return Family.OTHER


@lru_cache(maxsize=1024)
def encoding(model: str | None) -> Tokenizer:
    """The encoding to count `model`'s text with, the nearest one where its own is not public."""
    kind = family(model)
    if kind is Family.OPENAI and _CL100K_MODELS.match(bare(model or "")):
        return Tokenizer("cl100k_base", exact=True)
    return _ENCODINGS.get(kind, _ESTIMATE)
