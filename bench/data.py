"""Recorded conversations as chat requests: one JSON object a line, as `request` or as `messages` with `tools`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = "gpt-4o"  # where a conversation names none: a tokenizer is needed to count


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recorded conversation: `request` is the whole of it as one chat request, `record` all that its line says."""

    id: str
    request: dict[str, Any]
    record: dict[str, Any]


def read(path: Path) -> Iterator[Conversation]:
    """The conversations in a file of JSON lines.

    Raises:
        ValueError: a line is no JSON object with `request` or `messages`; the message says which line.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
            yield _conversation(record, f"{path}, line {number}")


def _conversation(record: Any, where: str) -> Conversation:
    if not isinstance(record, dict):
        raise ValueError(f"{where}: must be an object, got {type(record).__name__}")
    request = record.get("request")
    if request is None:
        request = {key: record[key] for key in ("model", "messages", "tools") if record.get(key)}
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list) or not request["messages"]:
        raise ValueError(f"{where}: must have messages, or a request with messages, got keys {sorted(record)}")
    return Conversation(str(record.get("id", where)), {"model": MODEL, **request}, record)


def prefixes(conversation: Conversation) -> Iterator[dict[str, Any]]:
    """The requests that the conversation was made by: each prefix that ends with a user or tool message.

    Between parallel results no request is made, so of a run of tool messages only the last ends one.
    """
    messages = conversation.request["messages"]
    for end, message in enumerate(messages, 1):
        after = messages[end]["role"] if end < len(messages) else None
        if message["role"] == "user" or (message["role"] in ("tool", "function") and after not in ("tool", "function")):
            yield {**conversation.request, "messages": messages[:end]}
