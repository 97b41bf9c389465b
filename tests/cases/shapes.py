"""What the cases share: every policy that needs no options, and messages with calls in them."""

from typing import Any

import pytest

from policies import registry
from policies.errors import PolicyError
from proxy.route import Pins
from tests.cases.trimmed import Trimmed, trim
from tests.proxy.counted import total
from tests.proxy.dialogues import Message, route


def _needs_nothing(name: str) -> bool:
    try:
        registry.create(name, {})
    except PolicyError:
        return False
    return True


POLICIES = sorted(filter(_needs_nothing, registry.names()))
every_policy = pytest.mark.parametrize("policy", POLICIES)


def calls(*numbers: int, name: str = "look_up", **extra: Any) -> Message:
    """An assistant message with one call for each number."""
    made = [{"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": "{}"}} for n in numbers]
    return {"role": "assistant", "content": None, "tool_calls": made, **extra}


def result(number: int, text: str) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def cut(messages: list[Message], keep: list[Message], policy: str = "fifo", **settings: Any) -> Trimmed:
    """The messages in a budget that is just large enough for `keep` in an emergency."""
    window = int(total("gpt-4o", keep) / 0.6) + 2
    values = {"protect_last": 0, "pins": Pins(first_user=False), **settings}
    return trim(messages, route(policy, window=window, **values))
