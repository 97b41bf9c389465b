"""Requests counted from their JSON on, as a client would send them."""

import json
from typing import Any

from proxy import tokens, wire
from proxy.wire.chat import Message


def total(model: str, messages: list[dict[str, Any]], **fields: Any) -> int:
    """Tokens of a whole request."""
    chat = wire.parse(json.dumps({"model": model, "messages": messages, **fields}).encode())
    counter = tokens.counter(model)
    return counter.overhead(chat.settings) + sum(counter.message(message) for message in chat.messages)


def message(**fields: Any) -> Message:
    """One message, a user's unless `role` says otherwise."""
    body = {"messages": [{"role": "user", **fields}]}
    return wire.parse(json.dumps(body).encode()).messages[0]
