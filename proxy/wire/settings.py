"""Reading the fields that decide a request's budget and overhead; a value of the wrong type counts as absent."""

from collections.abc import Callable, Collection
from typing import Any

from proxy.wire.chat import Settings

Read = Callable[[str], Any]
"""Gives the decoded value of a top-level field, None if there is none."""

LIMITS: tuple[tuple[str, ...], ...] = (
    ("max_completion_tokens",),
    ("max_tokens",),
    ("reasoning", "max_tokens"),  # OpenRouter
    ("thinking", "budget_tokens"),  # Anthropic's, through gateways
    ("thinking_budget",),  # Qwen on Model Studio, SiliconFlow
    ("thinking_token_budget",),  # vLLM
    ("chat_template_kwargs", "thinking_budget"),
    ("google", "thinking_config", "thinking_budget"),  # Gemini's OpenAI endpoint
    ("extra_body", "thinking_budget"),
    ("extra_body", "thinking", "budget_tokens"),
    ("extra_body", "google", "thinking_config", "thinking_budget"),
)
"""Where clients name how many tokens an answer, or the thinking before it, may take."""


LONGEST_NAME = 512

_TOPS = frozenset(path[0] for path in LIMITS)


def output_limits(read: Read, names: Collection[str] | None = None) -> tuple[int, ...]:
    """The limits that the request names: integers from 0 up; -1 and the like stand for no limit.

    `names` are those of the fields that it has, where they are known.
    """
    if names is not None and _TOPS.isdisjoint(names):
        return ()
    tops = {name: read(name) for name in _TOPS}
    found = (_descend(tops, path) for path in LIMITS)
    return tuple(limit for limit in found if type(limit) is int and limit >= 0)


def model_name(read: Read) -> str | None:
    """The `model` of the request; one of more than LONGEST_NAME characters is none, since names are remembered."""
    model = read("model")
    return model if isinstance(model, str) and len(model) <= LONGEST_NAME else None


def read_settings(read: Read) -> Settings:
    """The settings of a request."""
    return Settings(
        model=model_name(read),
        stream=read("stream") is True,
        output_limits=output_limits(read),
        tools=_array(read("tools")),
        functions=_array(read("functions")),
        tool_choice=read("tool_choice"),
        response_format=read("response_format"),
    )


def _descend(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _array(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else ()
