"""Strict YAML: scalars as YAML 1.2 has them, and messages that name the place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.yaml_paths import dotted, parse, suggest
from proxy.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("yes", "yes"),
        ("n", "n"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("010", 10),
        ("-3", -3),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1.2.3", "1.2.3"),
        (".", "."),
        (".inf", ".inf"),
        ("'8080'", "8080"),
        ("=", "="),
        ("gpt-4o*", "gpt-4o*"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    parsed = parse(f"a: {text}")["a"]

    assert (parsed, type(parsed)) == (value, type(value))


# YAML takes control characters only escaped, and breaks lines in more places than JSON.
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cn", "Cs", "Zl", "Zp"], exclude_characters="\ufeff"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_json_is_read_as_it_is(value: dict[str, object]) -> None:
    assert parse(json.dumps(value, ensure_ascii=False)) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "line 1, column 6: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\n\tb: 2", "line 2, column 1: not valid YAML: found character '\\t' that cannot start any token"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: not valid YAML: duplicate key 'a', first on line 1"),
        ("x:\n  a: 1\n  a: 1", "line 3, column 3: not valid YAML: duplicate key 'a', first on line 2"),
        ("1: a", "line 1, column 1: not valid YAML: keys must be strings; put this one in quotes"),
        ("? [a]\n: b", "line 1, column 3: not valid YAML: keys must be strings; put this one in quotes"),
        ("a: *b", "line 1, column 4: not valid YAML: found undefined alias 'b'"),
        ("a: !!python/name:os.system x", "line 1, column 4: not valid YAML: could not determine a constructor for"),
        ("a: 1\n---\nb: 2", "line 2, column 1: not valid YAML: but found another document"),
        ("a: \x01", "character 3: not valid YAML: special characters are not allowed"),
        ("- a", "the file must be a mapping of settings, such as «server: {port: 8080}», got a list"),
        ("a", "the file must be a mapping of settings, such as «server: {port: 8080}», got a text"),
        ("[" * 5000, "not valid YAML: nested too deep"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)

    (problem,) = caught.value.problems
    assert problem.startswith(expected)


def test_anchors_and_merge_keys_work() -> None:
    text = "base: &base {a: 1, b: 2}\nover: {<<: *base, b: 3}"

    assert parse(text)["over"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ((), ""),
        (("routes", 1, "policy", "alpha"), "routes[1].policy.alpha"),
        (("upstreams", "my host", "base_url"), "upstreams['my host'].base_url"),
        (("upstreams", "a.b"), "upstreams['a.b']"),
        (("x-team",), "x-team"),
    ],
)
def test_a_path_is_written_as_people_write_it(path: tuple[str | int, ...], written: str) -> None:
    assert dotted(path) == written


def test_a_suggestion_names_the_nearest_and_all() -> None:
    assert suggest("prot", ["port", "host"]) == "did you mean 'port'? Known here: host, port"
    assert suggest("colour", ["port", "host"]) == "Known here: host, port"
    assert suggest("colour", []) == "nothing may stand here"
