"""Random chat bodies as raw bytes, written by hand and not by a serialiser, with every part of them known."""

import json
from dataclasses import dataclass

from hypothesis import strategies as st

SPACES = st.sampled_from(["", "", "", " ", "\n", "\t", " \r\n  "])
NUMBERS = st.sampled_from(["0", "-0", "7", "1.0", "1e400", "-2.50E-3", "1180591620717411303424", "12e+1", "9" * 60])
LONE = st.sampled_from([r"\ud83d", r"\uDE00", r"\ude00\ud83d", r"\ud83d\ud83d", r"\ud83dA", "\\\\\\ud83d", "\\\\ud83d"])
ESCAPES = st.sampled_from(
    [r"\"", r"\\", r"\/", r"\n", r"\u0000", r"\u6c49", r"\ud83d\ude00", r"\\u0041", "汉", "é", "{[", "😀"]
)
ROLES = st.sampled_from(["system", "developer", "user", "user", "assistant", "assistant", "tool", "function", "critic"])
UNKNOWN_KEYS = st.sampled_from(["seed", "x_trace", "metadata", "été", "a b", "stop", "n"])


@dataclass(frozen=True)
class Body:
    """A body, and what it was made of: the raw messages, the raw top-level values, where the list stands."""

    raw: bytes
    messages: tuple[bytes, ...]
    fields: dict[str, bytes]
    before: bytes  # up to and including the opening bracket of the messages
    after: bytes  # from the closing bracket on


def strings(*pieces: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """String literals made of plain characters, escapes, and whatever else is given."""
    plain = st.text("abc xyz,:]}0", max_size=8)
    return st.lists(st.one_of(plain, ESCAPES, *pieces), max_size=4).map(lambda found: f'"{"".join(found)}"')


STRINGS = strings(LONE)


@st.composite
def arrays(draw: st.DrawFn, items: list[str]) -> str:
    return f"[{draw(SPACES)}{','.join(f'{draw(SPACES)}{item}{draw(SPACES)}' for item in items)}]"


@st.composite
def objects(draw: st.DrawFn, members: dict[str, str], shuffle: bool = True) -> str:
    order = draw(st.permutations(list(members))) if shuffle else list(members)
    pairs = (
        f"{draw(SPACES)}{draw(keys(key))}{draw(SPACES)}:{draw(SPACES)}{members[key]}{draw(SPACES)}" for key in order
    )
    return "{" + draw(SPACES) + ",".join(pairs) + "}"


@st.composite
def keys(draw: st.DrawFn, key: str) -> str:
    """The key as a literal, now and then with its first letter escaped."""
    escaped = draw(st.integers(0, 19)) == 0
    return f'"\\u{ord(key[0]):04x}{key[1:]}"' if escaped else json.dumps(key, ensure_ascii=False)


LEAVES = st.one_of(st.sampled_from(["null", "true", "false", "[]", "{}"]), NUMBERS, STRINGS)
VALUES = st.one_of(
    LEAVES,
    st.lists(LEAVES, max_size=3).flatmap(arrays),
    st.dictionaries(UNKNOWN_KEYS, LEAVES, max_size=2).flatmap(objects),
)


@st.composite
def parts(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["text", "text", "image_url", "video_url", "none"]))
    if kind == "none":
        return draw(VALUES)
    members = {"type": f'"{kind}"', kind: draw(STRINGS)}
    return draw(objects(members | draw(st.dictionaries(UNKNOWN_KEYS, LEAVES, max_size=1))))


@st.composite
def messages(draw: st.DrawFn) -> str:
    role = draw(ROLES)
    members = {"role": f'"{role}"'}
    match draw(st.sampled_from(["string", "string", "parts", "null", "missing", "other"])):
        case "string":
            members["content"] = draw(STRINGS)
        case "parts":
            members["content"] = draw(arrays(draw(st.lists(parts(), max_size=3))))
        case "null":
            members["content"] = "null"
        case "other":
            members["content"] = draw(st.one_of(NUMBERS, st.just("{}"), st.just("true")))
        case _:
            pass
    identity = draw(st.sampled_from(["call_0", "call_1"]))
    if role == "assistant" and draw(st.booleans()):
        members["tool_calls"] = f'[{{"id":"{identity}","function":{{"name":"f","arguments":{draw(STRINGS)}}}}}]'
    if role == "tool":
        members["tool_call_id"] = f'"{identity}"'
    return draw(objects(members | draw(st.dictionaries(UNKNOWN_KEYS, VALUES, max_size=2))))


@st.composite
def bodies(draw: st.DrawFn, max_messages: int = 6) -> Body:
    found = draw(st.lists(messages(), min_size=1, max_size=max_messages))
    members = {"model": draw(STRINGS), "messages": draw(arrays(found)), "temperature": draw(NUMBERS)}
    members |= draw(st.dictionaries(UNKNOWN_KEYS, VALUES, max_size=3))
    order = draw(st.permutations(list(members)))
    lead, tail = draw(SPACES), draw(SPACES)
    written = [f"{draw(SPACES)}{draw(keys(key))}{draw(SPACES)}:{draw(SPACES)}" for key in order]
    at = order.index("messages")
    pieces = [key + members[name] + draw(SPACES) for key, name in zip(written, order, strict=True)]
    head = lead + "{" + "".join(f"{piece}," for piece in pieces[:at]) + written[at]
    raw = f"{lead}{{{','.join(pieces)}}}{tail}"
    rest = raw[len(head) + len(members["messages"]) :]
    return Body(
        raw=raw.encode(),
        messages=tuple(message.encode() for message in found),
        fields={name: members[name].encode() for name in order},
        before=f"{head}[".encode(),
        after=f"]{rest}".encode(),
    )
