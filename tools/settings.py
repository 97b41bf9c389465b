"""The settings as the configuration's models have them: path, type in words, and default."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.config.schema import Config

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `default` is YAML on one line, None where there is none, so that it has to be given."""

    path: str
    type: str
    default: str | None


def settings() -> Iterator[Setting]:
    """Every setting, in the order of the models; what routes inherit is listed once, at `defaults`."""
    schema = Config.model_json_schema()
    inherited = set(schema["$defs"]["Defaults"]["properties"])
    for setting in _walk(schema, schema, ""):
        name = setting.path.removeprefix("routes[].").partition(".")[0]
        if not (setting.path.startswith("routes[].") and name in inherited):
            yield setting


def _walk(node: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Iterator[Setting]:
    required = set(node.get("required", ()))
    for name, given in node["properties"].items():
        field, where = _resolved(given, root), f"{path}{name}"
        entry = _resolved(field.get("items", {}), root)
        values = _resolved(field["additionalProperties"], root) if _is_map(field) else {}
        if "properties" in field and name != "policy":
            yield from _walk(field, root, f"{where}.")
        elif "properties" in entry:
            yield from _walk(entry, root, f"{where}[].")
        elif "properties" in values:
            yield from _walk(values, root, f"{where}.NAME.")
        else:
            default = None if name in required else _default(field)
            yield Setting(where, "policy" if name == "policy" else _words(given, root), default)


def _is_map(field: Mapping[str, Any]) -> bool:
    return isinstance(field.get("additionalProperties"), dict)


def _resolved(field: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in field:
        reference = field["$ref"].rpartition("/")[2]
        field = {**root["$defs"][reference], **{key: field[key] for key in field if key != "$ref"}}
    return field


def _default(field: Mapping[str, Any]) -> str:
    default = field.get("default")
    if isinstance(default, dict) and set(default) >= {"name"}:
        return str(default["name"])
    return json.dumps(default) if not isinstance(default, str) else default or '""'


def _words(field: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    field = _resolved(field, root)
    if "anyOf" in field:
        each = dict.fromkeys(_words(option, root) for option in field["anyOf"])
        return " or ".join(each)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type")
    if kind == "null":
        return "null"
    if kind == "array":
        return f"list of {_plural(_words(field['items'], root))}"
    if kind == "object":
        return f"mapping to {_plural(_words(field.get('additionalProperties') or {}, root))}"
    return f"{_TYPES.get(str(kind), 'value')}{_range(field)}"


def _plural(words: str) -> str:
    return {"text": "texts", "number": "numbers", "whole number": "whole numbers"}.get(words, words)


def _range(field: Mapping[str, Any]) -> str:
    low, above = field.get("minimum"), field.get("exclusiveMinimum")
    high, below = field.get("maximum"), field.get("exclusiveMaximum")
    parts = [
        *([f"at least {low:,}"] if low is not None else []),
        *([f"more than {above:,}"] if above is not None else []),
        *([f"at most {high:,}"] if high is not None else []),
        *([f"less than {below:,}"] if below is not None else []),
    ]
    return f", {' and '.join(parts)}" if parts else ""
