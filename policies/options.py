"""The options of a policy: the fields of its dataclass, checked by type and range, and described."""

import dataclasses
import difflib
import json
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from policies.errors import PolicyError

# Strict: "0.5" is no number and true is no 1. Read as JSON, whose strict rules take a list for a tuple.
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option: its type and range in words, its default (None and `required` where it has none), what it does."""

    name: str
    type: str
    default: Any
    required: bool
    doc: str


def option(policy: type, field: "dataclasses.Field[Any]") -> Option:
    """The option that a dataclass field stands for; ranges and words come from `pydantic.Field` in its annotation."""
    hint = get_type_hints(policy, include_extras=True)[field.name]
    info = FieldInfo.from_annotation(hint)
    words = " ".join(filter(None, (_type(hint), _range(info))))
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return Option(field.name, words, None if required else default, required, info.description or "")


def validated(policy: type, given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The given options as values of their fields' types; raise PolicyError with every problem, each under `path`."""
    if not isinstance(given, Mapping):
        raise PolicyError(f"{path}: must be a mapping of options to values, got {reprlib.repr(given)}")
    fields = {field.name: field for field in dataclasses.fields(policy) if field.init}
    hints = get_type_hints(policy, include_extras=True)
    problems = [_unknown(key, list(fields), path) for key in given if key not in fields]
    problems += [
        f"{path}.{name}: is required"
        for name, field in fields.items()
        if name not in given and option(policy, field).required
    ]
    values: dict[str, Any] = {}
    for name in fields.keys() & given.keys():
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hints[name], config=_STRICT)
            values[name] = adapter.validate_json(json.dumps(given[name]))
        except ValidationError as error:
            problem = _problem(hints[name], error.errors()[0])
            problems.append(f"{path}.{name}: {problem}, got {reprlib.repr(given[name])}")
        except TypeError:
            kind = type(given[name]).__name__
            problems.append(f"{path}.{name}: must be a number, text, list or mapping, got a {kind}")
    if problems:
        raise PolicyError(*sorted(problems))
    return values


def _unknown(key: object, known: list[str], path: str) -> str:
    near = difflib.get_close_matches(str(key), known, n=1)
    hint = f', did you mean "{near[0]}"?' if near else ""
    return f'{path}: unknown option "{key}"{hint} (options: {", ".join(known) or "none"})'


def _problem(hint: Any, error: Any) -> str:
    info = FieldInfo.from_annotation(hint)
    if error["type"] in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"must be {_range(info)}"
    message = str(error["msg"])
    if message.startswith("Input should be "):
        return f"must be {message.removeprefix('Input should be ')}"
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _range(info: FieldInfo) -> str:
    """The range that the annotation declares, in words; empty where it declares none."""
    bounds = {
        key: getattr(item, key) for item in info.metadata for key in ("ge", "gt", "le", "lt") if hasattr(item, key)
    }
    if {"ge", "le"} <= bounds.keys():
        return f"between {bounds['ge']} and {bounds['le']}"
    words = {"ge": "at least", "gt": "over", "le": "at most", "lt": "under"}
    return " and ".join(f"{words[key]} {bounds[key]}" for key in words if key in bounds)


def _type(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        return _type(get_args(hint)[0])
    if origin is Literal:
        return " | ".join(str(value) for value in get_args(hint))
    if origin is None:
        return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))
    if origin in (tuple, list, frozenset):
        return f"list of {_type(get_args(hint)[0])}"
    return " | ".join(_type(part) for part in get_args(hint))
