from typing import Any

import pytest

from proxy.tokens import schemas


def obj(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


def field(schema: Any, **root: Any) -> str:
    """How a property with this schema is declared."""
    text = schemas.namespace([{"name": "f", "parameters": {**obj(["a"], a=schema), **root}}])
    return text.removeprefix("namespace functions {\n\ntype f = (_: {\n").removesuffix(
        "\n}) => any;\n\n} // namespace functions"
    )


def test_functions_are_declared_in_a_namespace() -> None:
    book = {
        "name": "book_table",
        "description": "Books a table.",
        "parameters": obj(
            ["people"],
            people={"type": "integer", "description": "How many come"},
            terrace={"type": "boolean", "default": False},
        ),
    }

    assert schemas.namespace([book, {"name": "ping"}]) == (
        "namespace functions {\n"
        "\n"
        "// Books a table.\n"
        "type book_table = (_: {\n"
        "// How many come\n"
        "people: number,\n"
        "terrace?: boolean, // default: false\n"
        "}) => any;\n"
        "\n"
        "type ping = () => any;\n"
        "\n"
        "} // namespace functions"
    )


@pytest.mark.parametrize(
    ("schema", "declared"),
    [
        ({"type": "string"}, "a: string,"),
        ({"type": "string", "enum": ["x", "y"]}, 'a: "x" | "y",'),
        ({"enum": [1, None]}, "a: 1 | null,"),
        ({"const": "x"}, 'a: "x",'),
        ({"type": ["string", "null"]}, "a: string | null,"),
        ({"type": "array", "items": {"type": "integer"}}, "a: number[],"),
        ({"type": "array"}, "a: any[],"),
        ({"type": "object"}, "a: object,"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "a: string | null,"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, "a: string & null,"),
        (obj(["b"], b={"type": "string"}), "a: {\n  b: string,\n},"),
        ({"type": "array", "items": obj(b={"type": "string"})}, "a: {\n  b?: string,\n}[],"),
        ({"$ref": "#/$defs/nowhere"}, "a: nowhere,"),
        ({"type": "string", "description": "One\n    and two.\n    "}, "// One\nand two.\na: string,"),
        ({}, "a: any,"),
        (True, "a: any,"),
        ({"type": 7, "enum": "x", "anyOf": {}, "description": {"a": 1}}, '// {"a":1}\na: any,'),
    ],
)
def test_types_are_typescripts(schema: Any, declared: str) -> None:
    assert field(schema) == declared


def test_a_definition_is_written_once_then_named() -> None:
    pair = {"type": "array", "items": {"$ref": "#/$defs/pair"}}
    tree = obj(left={"$ref": "#/$defs/pair"}, right={"$ref": "#/$defs/pair"})

    assert field(pair, **{"$defs": {"pair": tree}}) == "a: {\n  left?: pair,\n  right?: pair,\n}[],"


def test_references_that_double_at_every_step_stay_small() -> None:
    steps = {f"s{i}": obj(x={"$ref": f"#/$defs/s{i + 1}"}, y={"$ref": f"#/$defs/s{i + 1}"}) for i in range(60)}

    assert len(field({"$ref": "#/$defs/s0"}, **{"$defs": steps})) < 20_000


def test_a_schema_nested_beyond_reason_ends() -> None:
    deep: Any = {"type": "string"}
    for _ in range(3_000):
        deep = obj(a=deep)

    assert "any" in field(deep)
    assert schemas.response_schema({"json_schema": {"name": "x", "schema": deep}})[0] == "x"


@pytest.mark.parametrize(
    ("tool", "function"),
    [
        ({"type": "function", "function": {"name": "f"}}, {"name": "f"}),
        ({"type": "custom", "custom": {"name": "f"}}, {"name": "f"}),
        ({"name": "f"}, {"name": "f"}),
        ({"type": "function", "function": None}, {"type": "function", "function": None}),
        (7, 7),
    ],
)
def test_a_function_is_found_in_its_tool(tool: Any, function: Any) -> None:
    assert schemas.function_of(tool) == function


@pytest.mark.parametrize("odd", [7, "f", None, {"name": 7}, {"parameters": {}}, ["name"]])
def test_what_is_no_function_is_counted_as_json(odd: Any) -> None:
    assert schemas.plain(odd) in schemas.namespace([odd])


def test_a_custom_tools_grammar_counts() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}}

    assert schemas.plain(grammar) in schemas.namespace([{"name": "f", "format": grammar}])


def test_a_response_schema_goes_without_what_all_strict_ones_share() -> None:
    inner = {**obj(), "properties": {"required": {"type": "string"}}, "additionalProperties": False}
    given = {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": inner}}

    assert schemas.response_schema(given) == (
        "n",
        "// d\n",
        '{"type":"object","properties":{"required":{"type":"string"}}}',
    )


@pytest.mark.parametrize("given", [None, "text", {"type": "json_object"}, {"json_schema": None}, []])
def test_other_response_formats_have_no_texts(given: Any) -> None:
    assert schemas.response_schema(given) == ()
