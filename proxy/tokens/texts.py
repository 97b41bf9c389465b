"""The texts of a message as a model is given them, to be counted each by itself."""

import json

from proxy.tokens import schemas
from proxy.wire import chat


def texts(m: chat.Message) -> list[str]:
    """Content, names, calls, and what other fields of the message are fed to the model."""
    return [*said(m), *called(m)]


def said(m: chat.Message) -> list[str]:
    """The texts apart from tool calls."""
    found = [part.text for part in m.parts if isinstance(part, chat.Text)]
    if m.role == "function":
        found.append(m.answers or m.name or "")
    elif m.name is not None:
        found.append(m.name)
    found += m.extras
    return found


def called(m: chat.Message) -> list[str]:
    """The tool calls. A call's name stands here twice: it also heads the result, which knows only the call's id."""
    found = []
    if len(m.calls) > 1 and not m.legacy_call:
        found.append(_parallel(m.calls))
    else:
        for call in m.calls:
            found += (call.name, call.arguments)
    if not m.legacy_call:
        found += [call.name for call in m.calls]
    return found


def _parallel(calls: tuple[chat.Call, ...]) -> str:
    """Several calls as the one call that they are to the model."""
    uses = (f'{{"recipient_name":"functions.{call.name}","parameters":{_compact(call.arguments)}}}' for call in calls)
    return f'{{"tool_uses":[{",".join(uses)}]}}'


def _compact(arguments: str) -> str:
    try:
        return schemas.plain(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments
