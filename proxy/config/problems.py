"""What is wrong with a configuration, a line each: `routes[1].policy.alpha: must be between 0 and 1, got 7`. (pure)"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.config.yaml_paths import dotted, kind, suggest

Path = tuple[str | int, ...]

# A secret may stand where it does not belong: what is likely to be one, or to hold one, is never shown.
_SECRET_PLACES = frozenset({"api_key_env", "state_key_env", "key", "base_url", "state", "header"})
_SECRET_LOOKS = re.compile(r"\b(sk|pk|gsk|key|bearer|basic)[-_ ]|[A-Za-z0-9_-]{24}|://[^/]*@", re.IGNORECASE)
_LONGEST = 60  # characters of a value that are shown


class MisplacedError(ValueError):
    """A problem found by comparing values, that belongs at `path` below the model that compared them."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class SeveralProblemsError(ValueError):
    """More than one problem of one model."""

    def __init__(self, problems: Sequence[MisplacedError]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def problems(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[Path, str]]:
    """Every problem of `error`, raised by `model`: where it is, and what is wrong and what would do."""
    for detail in error.errors(include_url=False):
        cause = detail.get("ctx", {}).get("error")
        found = (
            cause.problems
            if isinstance(cause, SeveralProblemsError)
            else (cause,)
            if isinstance(cause, MisplacedError)
            else ()
        )
        for one in found:
            yield (*_path(detail), *one.path), str(one)
        if not found:
            yield _path(detail), _message(detail, model)


def line(path: Path, message: str) -> str:
    """A problem as it is shown."""
    return f"{dotted(path)}: {message}" if path else message


def shown(value: object, path: Path = ()) -> str:
    """A value as a message may show it: cut where it is long, left out where it may be a secret."""
    if isinstance(value, (Mapping, list)):
        return kind(value)
    if value is None:
        return "null"
    if isinstance(value, str) and (not _SECRET_PLACES.isdisjoint(map(str, path)) or _SECRET_LOOKS.search(value)):
        return "a text that is not shown here"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _path(detail: ErrorDetails) -> Path:
    # pydantic marks a key that is itself wrong with a last step of its own.
    return tuple(step for step in detail["loc"] if step != "[key]")


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    path, context = _path(detail), detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        return f"unknown key; {suggest(str(path[-1]), _keys(model, path[:-1]))}"
    if detail["type"] == "missing":
        return f"required: {_REQUIRED[str(path[-1])]}"
    wanted = _WANTED.get(detail["type"])
    if wanted is not None:
        return f"must be {wanted.format(**context)}, got {shown(detail['input'], path)}"
    if "error" in context:
        return str(context["error"])
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, got {shown(detail['input'], path)}"


_REQUIRED = {
    "base_url": "the provider's address, such as https://api.openai.com/v1",
    "name": "a name that no other route has",
    "upstream": "the name of one of the upstreams",
}
_WANTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "enum": "one of {expected}",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "int_parsing_size": "a smaller number",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "list_type": "a list",
    "literal_error": "one of {expected}",
    "model_type": "a mapping",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that `model` allows at `path`."""
    at: Any = model
    for step in path:
        at = at.model_fields[step].annotation if _is_model(at) and step in at.model_fields else at
        while not _is_model(at) and get_args(at):
            at = next((arg for arg in get_args(at) if _holds_model(arg)), None)
    return list(at.model_fields) if _is_model(at) else []


def _is_model(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, BaseModel)


def _holds_model(type_: object) -> bool:
    return _is_model(type_) or any(_holds_model(arg) for arg in get_args(type_))
