"""Tool schemas and response formats as the text that OpenAI's models are given, for counting.

Functions become TypeScript declarations in a namespace; a response format's JSON schema stays JSON. The forms were
worked out from requests whose usage the provider reported (hmarr/openai-chat-tokens found the first of them): they
are right to a few tokens, whatever the schema. Any JSON value gives a text, of a size in proportion to its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_DEPTH = 40  # nested deeper than this, a type is `any`: no model is given such a schema, and the stack has an end
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps makes one each time

Json = Mapping[str, Any]


def namespace(functions: Sequence[Any]) -> str:
    """The declarations of `functions`, each a function object: `name`, `description`, `parameters`."""
    lines = ["namespace functions {", ""]
    for function in functions:
        lines += [*_declaration(function), ""]
    lines.append("} // namespace functions")
    return "\n".join(lines)


def function_of(tool: Any) -> Any:
    """The function object inside a tool, or the tool itself where it has none; a custom tool's own object."""
    if isinstance(tool, Mapping):
        for kind in ("function", "custom"):
            if isinstance(tool.get(kind), Mapping):
                return tool[kind]
    return tool


def response_schema(response_format: Any) -> tuple[str, ...]:
    """The texts of a `json_schema` response format: name, description, schema; none of any other kind.

    `required` and `additionalProperties` do not count: strict schemas all have the same.
    """
    inner = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if not isinstance(inner, Mapping):
        return ()
    description = f"// {_string(inner['description'])}\n" if inner.get("description") else ""
    return _string(inner.get("name") or ""), description, plain(_without_constants(inner.get("schema"), 0))


def plain(value: Any) -> str:
    """`value` as compact JSON, a mere mention of it where that cannot be written; never raises."""
    try:
        return _COMPACT.encode(value)
    except (RecursionError, TypeError, ValueError):
        return f"<{type(value).__name__}>"


def _string(value: Any) -> str:
    return value if isinstance(value, str) else plain(value)


def _without_constants(schema: Any, depth: int) -> Any:
    if depth > _DEPTH:
        return schema
    if isinstance(schema, Mapping):
        return {
            key: {name: _without_constants(inner, depth + 1) for name, inner in value.items()}
            if key == "properties" and isinstance(value, Mapping)
            else _without_constants(value, depth + 1)
            for key, value in schema.items()
            if key not in ("required", "additionalProperties")
        }
    if isinstance(schema, list | tuple):
        return [_without_constants(item, depth + 1) for item in schema]
    return schema


def _declaration(function: Any) -> Iterator[str]:
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        yield plain(function)
        return
    name, schema = function["name"], function.get("parameters")
    if function.get("description"):
        yield _comment(function["description"])
    if "format" in function:  # a custom tool's grammar
        yield plain(function["format"])
    if not isinstance(schema, Mapping):
        yield f"type {name} = () => any;"
        return
    fields = list(_Types(schema).fields(schema, 0, 0))
    if fields:
        yield f"type {name} = (_: {{"
        yield from fields
        yield "}) => any;"
    else:
        yield f"type {name} = () => any;"


def _comment(text: Any) -> str:
    """A description as a comment: its lines without their indentation, the first behind slashes."""
    return "// " + "\n".join(line.strip() for line in _string(text).strip().splitlines())


class _Types:
    """JSON schema to TypeScript types. A definition is written out where it is first used, then named."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._written: set[str] = set()

    def fields(self, schema: Json, indent: int, depth: int) -> Iterator[str]:
        """The lines of an object's properties."""
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, Mapping):
            return
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list | tuple) else set()
        margin = " " * indent
        for name, field in properties.items():
            if isinstance(field, Mapping) and field.get("description"):
                yield margin + _comment(field["description"])
            line = f"{margin}{name}{'' if name in needed else '?'}: {self.type(field, indent, depth + 1)},"
            if isinstance(field, Mapping) and field.get("default") is not None:
                line += f" // default: {plain(field['default'])}"
            yield line

    def type(self, schema: Any, indent: int, depth: int) -> str:
        """One type."""
        if not isinstance(schema, Mapping) or depth > _DEPTH:
            return "any"
        if isinstance(schema.get("$ref"), str):
            return self._named(schema["$ref"], indent, depth)
        for key in ("enum", "anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(key), list | tuple) and options:
                if key == "enum":
                    return " | ".join(plain(option) for option in options)
                joint = " & " if key == "allOf" else " | "
                return joint.join(self.type(option, indent, depth + 1) for option in options)
        if "const" in schema:
            return plain(schema["const"])
        kind = schema.get("type")
        if isinstance(kind, list | tuple):
            return " | ".join(self._simple(one, schema, indent, depth) for one in kind)
        return self._simple(kind, schema, indent, depth)

    def _simple(self, kind: Any, schema: Json, indent: int, depth: int) -> str:
        if kind == "object" or (kind is None and "properties" in schema):
            lines = list(self.fields(schema, indent + 2, depth))
            if not lines:
                return "object"
            return "\n".join(["{", *lines, "}"])
        if kind == "array":
            return f"{self.type(schema.get('items'), indent, depth + 1)}[]"
        if kind == "integer":
            return "number"
        return kind if isinstance(kind, str) else "any"

    def _named(self, reference: str, indent: int, depth: int) -> str:
        path = reference.removeprefix("#/").split("/")
        target: Any = self._root
        for step in path:
            target = target.get(step) if isinstance(target, Mapping) else None
        if reference in self._written or not isinstance(target, Mapping):
            return path[-1] or "any"
        self._written.add(reference)
        return self.type(target, indent, depth + 1)
