"""Strict YAML: one mapping of strings to JSON values, and the path of a value in it as people write it.

Scalars follow the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema), not PyYAML's 1.1:
`mode: off` is the text "off", `12:30` is no number and `2026-01-01` no date.
"""

import difflib
import re
from collections.abc import Hashable, Iterable

import yaml

from proxy.errors import ConfigError

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with 1.2 scalars, that refuses duplicate keys and keys that are not strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise _At(key.start_mark, "keys must be strings; put this one in quotes")
            if key.value in seen:
                raise _At(key.start_mark, f"duplicate key {key.value!r}, first on line {seen[key.value].line + 1}")
            seen[key.value] = key.start_mark
        return super().construct_mapping(node, deep)


class _At(yaml.MarkedYAMLError):
    def __init__(self, mark: yaml.Mark, problem: str) -> None:
        super().__init__(problem=problem, problem_mark=mark)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    ("int", r"[-+]?[0-9]+\Z", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", list("-+.0123456789")),
    ("merge", r"<<\Z", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    # PyYAML's own constructor reads a leading zero as octal, as YAML 1.1 did.
    return int(loader.construct_scalar(node))


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def parse(text: str) -> dict[str, object]:
    """The mapping that `text` holds; an empty text is an empty mapping. Raises ConfigError with line and column."""
    try:
        # `_Loader` constructs plain data only, as SafeLoader does.
        data = yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        # The line itself is not repeated: it may hold a secret.
        raise ConfigError(f"{place}not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"character {error.position}: not valid YAML: {error.reason}") from None
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deep") from None
    except ValueError as error:
        raise ConfigError(f"not valid YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"the file must be a mapping of settings, such as «server: {{port: 8080}}», got {kind(data)}")
    return data


def kind(value: object) -> str:
    """What a value is, for messages that must not show it."""
    names: tuple[tuple[type, str], ...] = ((dict, "a mapping"), (list, "a list"), (str, "a text"), (bool, "a boolean"))
    return next((name for cls, name in names if isinstance(value, cls)), "nothing" if value is None else "a number")


def dotted(path: Iterable[str | int]) -> str:
    """A path as people write it: `routes[1].policy.alpha`, `upstreams['my host'].base_url`."""
    out = ""
    for key in path:
        if isinstance(key, int):
            out += f"[{key}]"
        elif _PLAIN.match(key):
            out += f".{key}" if out else key
        else:
            out += f"[{key!r}]"
    return out


def suggest(name: str, known: Iterable[str]) -> str:
    """A half-sentence that helps someone who wrote `name`: the nearest of the known names, then all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known here: {', '.join(names)}" if names else "nothing may stand here"
