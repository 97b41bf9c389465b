"""What config.example.yaml says of each setting: its comment, by the setting's path."""

import re
from collections.abc import Iterator, Mapping

_KEY = re.compile(r"(?P<indent> *)(?P<item>- )?(?P<key>[a-z_]+):(?P<rest>.*)")
_EXAMPLE = re.compile(r"#   (?P<entry>(?:- |  )[a-z_]+:.*)")  # an entry of a list that is empty by default


def comments(text: str) -> Mapping[str, str]:
    """The comments by dotted path, entries of lists as `routes[]`; comments above a setting are before its own."""
    found: dict[str, list[str]] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []
    last = ""
    for line in _lines(text):
        if match := _KEY.fullmatch(line):
            indent = len(match["indent"])
            path = [step for step in path if step[0] < indent + (2 if match["item"] else 0)]
            if match["item"]:
                path = [step for step in path if step[0] < indent]
                path.append((indent, "[]"))
                indent += 2
            path.append((indent, match["key"]))
            last = ".".join(name for _, name in path).replace(".[]", "[]")
            _, hash_, own = match["rest"].partition(" #")
            found[last] = [*above, *([own.strip()] if hash_ else [])]
            above = []
        elif line.startswith("#"):
            above.append(line.removeprefix("#").strip())
        elif line.strip().startswith("#"):  # goes on with the comment of the line before
            found[last].append(line.strip().removeprefix("#").strip())
        else:
            above = []
    return {path: " ".join(lines) for path, lines in found.items()}


def _lines(text: str) -> Iterator[str]:
    """The lines, commented examples of entries moved below the empty list that they are of."""
    examples: list[str] = []
    for line in text.splitlines():
        if match := _EXAMPLE.fullmatch(line):
            examples.append(f"  {match['entry']}")
            continue
        yield line
        if line.endswith(": []") and examples:
            yield from examples
            examples = []
