"""Whether an upstream's error says that the request is too long, and by how much. (pure)

By code and type first, then by a table of phrasings. Wrongly saying yes costs a conversation its history, so statuses
and words of other troubles (keys, credits, rates, filters) come before it: a limit per minute is none of the model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.http import headers
from proxy.http.headers import Headers
from proxy.upstream import error_bodies, overflow_phrases
from proxy.upstream.error_bodies import Said
from proxy.upstream.overflow_phrases import Found, Kind

__all__ = ["Kind", "Refusal", "classify", "classify_event"]

SMALLEST, LARGEST = 1, 1_000_000_000  # tokens; outside of this a figure is taken for a mistake

# Codes and types as they are compared: without what is not a letter or digit.
_CODES: Mapping[str, Kind] = {
    **dict.fromkeys(
        (
            *(
                "contextlengthexceeded",
                "contextwindowexceeded",
                "contextwindowexceedederror",
                "contextlengthexceedederror",
            ),
            *("exceedcontextsizeerror", "modelcontextwindowexceeded", "contextoverflow", "maxcontextlengthexceeded"),
            *("prompttoolong", "inputtoolong", "tokenslimitreached", "messagelengthexceedslimit", "tokenlimitexceeded"),
        ),
        Kind.CONTEXT,
    ),
    **dict.fromkeys(
        ("stringabovemaxlength", "requesttoolarge", "requestentitytoolarge", "payloadtoolarge", "contenttoolarge"),
        Kind.BODY,
    ),
}
_ARRAY_CODE = "arrayabovemaxlength"
_OTHER_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 408, 429})
_OTHER_CODES = re.compile(
    r"rate.?limit|quota|billing|credit|balance|api.?key|authenticat|permission|content.?(?:filter|policy)|moderation"
    r"|safety|throttl|overloaded|not.?found|tool.?use|^tokens$|^requests$"
)
_VALUE_CODES = frozenset({"invalid_value", "invalid_type", "unsupported_value", "unknown_parameter"})
_OTHER_TEXTS = re.compile(
    r"rate[ _-]?limit|\b(?:tokens?|requests) per (?:second|min|hour|day)|\b[tr]p[smd]\b|throttl|too many requests"
    r"|\bquota\b|\bcredits\b|please wait before|try again in \d",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What is too much, and the figures that the error gives, in tokens, None where it does not.

    `limit` is that of prompt and answer together, or of the prompt where that is what the upstream limits; of a
    COMPLETION, that of the answer; of MESSAGES, that of their number. `needed` is what the request would take, the
    reserved answer included where the upstream counts it, and `over` how much that is too many; `prompt` is its
    prompt alone, `output` what it reserves for the answer.
    """

    kind: Kind
    limit: int | None = None
    needed: int | None = None
    prompt: int | None = None
    output: int | None = None
    over: int | None = None


def classify(status: int, fields: Headers, body: bytes) -> Refusal | None:
    """What of the request was too much, by a response's status, header fields and first bytes; None for other errors.

    Total: `body` may be anything of any size, compressed or not; its first 64 KiB are looked at.
    """
    if status < 400 or status in _OTHER_STATUSES:
        return None
    said = error_bodies.read(body, headers.text(fields, b"content-encoding"))
    if _is_other(said):
        return None
    return _judge(said) or (Refusal(kind=Kind.BODY) if status == 413 else None)


def classify_event(error: Any) -> Refusal | None:
    """The same for an error that was reported inside a reply with status 200: any JSON value, or its text."""
    said = error_bodies.of(error)
    if _is_other(said) or any(code in ("401", "402", "403", "404", "429") for code in _numeric(error)):
        return None
    return _judge(said)


def _numeric(error: Any) -> list[str]:
    """The HTTP statuses that an error object gives as its code."""
    inner = error.get("error") if isinstance(error, dict) else None
    places = [place for place in (error, inner) if isinstance(place, dict)]
    return [str(place.get(name)) for place in places for name in ("code", "status")]


def _is_other(said: Said) -> bool:
    """Whether it is about another trouble; a code of ours says that it is not, whatever the text adds."""
    if any(_OTHER_CODES.search(code) for code in said.codes):
        return True
    if any(_collapsed(code) in _CODES for code in said.codes):
        return False
    if any(code in _VALUE_CODES for code in said.codes) and any(param.startswith("messages[") for param in said.params):
        return True  # a value in one message is at fault, and is quoted: the words are the client's
    return any(_OTHER_TEXTS.search(text) for text in said.texts)


def _judge(said: Said) -> Refusal | None:
    by_code = next((kind for code in said.codes if (kind := _CODES.get(_collapsed(code)))), None)
    if by_code is None and any(_collapsed(code) == _ARRAY_CODE for code in said.codes):
        # Too many tools have the same code.
        by_code = Kind.MESSAGES if any(param.startswith("messages") for param in said.params) else None
    found = _first(said)
    if found is None or (by_code is not None and by_code is not found.kind and found.kind is not Kind.COMPLETION):
        found = Found(by_code) if by_code is not None else None
    return _of(found, said)


def _first(said: Said) -> Found | None:
    """The first phrasing in any of the texts; one with a limit before one without."""
    found = [each for text in said.texts if (each := overflow_phrases.find(text))]
    return next((each for each in found if each.limit is not None), found[0] if found else None)


def _of(found: Found | None, said: Said) -> Refusal | None:
    if found is None:
        return None
    figures = dict(said.figures)
    limit = _tokens(found.limit) or _tokens(figures.get("n_ctx"))
    prompt = _tokens(found.prompt) or _tokens(figures.get("n_prompt_tokens"))
    output = _tokens(found.output)
    needed = _tokens(found.total)
    if needed is None and prompt is not None:
        needed = prompt + (output or 0)
    if needed is None and limit is not None and found.over is not None:
        needed = limit + found.over
    over = _tokens(found.over)
    if over is None and needed is not None and limit is not None and needed > limit:
        over = needed - limit
    kind = found.kind
    if kind is Kind.CONTEXT and limit is not None and output is not None and output >= limit:
        kind = Kind.COMPLETION  # without any prompt it would not fit either
    if kind in (Kind.BODY, Kind.MESSAGES):
        return Refusal(kind=kind, limit=limit if kind is Kind.MESSAGES else None)
    return Refusal(kind=kind, limit=limit, needed=needed, prompt=prompt, output=output, over=over)


def _tokens(figure: int | None) -> int | None:
    return figure if figure is not None and SMALLEST <= figure <= LARGEST else None


def _collapsed(code: str) -> str:
    """`litellm.ContextWindowExceededError` and `context_window_exceeded_error` are one code."""
    return re.sub(r"[^a-z0-9]", "", code.rpartition(".")[2])
