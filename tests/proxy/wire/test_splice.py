"""What no edit names leaves byte for byte, and what edits name is what they say; both for bodies of any form."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import wire
from proxy.wire import Chat
from proxy.wire.chat import Shape, Text
from proxy.wire.splice import Edits, Note, kept_slices, splice
from tests.proxy.chat_bodies import Body, bodies
from tests.validator import worsened

TEXTS = st.text(st.characters(exclude_categories=[]), min_size=1, max_size=12)


@dataclass
class Drawn:
    """Edits that are valid for a chat."""

    drop: set[int] = field(default_factory=set)
    contents: dict[int, str] = field(default_factory=dict)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


@st.composite
def edits_for(draw: st.DrawFn, chat: Chat) -> Edits:
    drawn = Drawn()
    for index, message in enumerate(chat.messages):
        if draw(st.booleans()):
            drawn.notes.append(Note(before=index, text=draw(TEXTS)))
        match draw(st.sampled_from(["keep", "keep", "drop", "content", "texts"])):
            case "drop":
                drawn.drop.add(index)
                continue
            case "content":
                drawn.contents[index] = draw(TEXTS)
            case "texts":
                parts = (p for p, part in enumerate(message.parts) if isinstance(part, Text) and draw(st.booleans()))
                drawn.texts |= {(index, part): draw(TEXTS) for part in parts}
            case _:
                pass
        if message.role == "user" and message.shape not in (Shape.MISSING, Shape.OTHER) and draw(st.booleans()):
            drawn.notes.append(Note(before=index, text=draw(TEXTS), merge=True))
    if len(drawn.drop) == len(chat.messages):
        drawn.notes.append(Note(before=len(chat.messages), text=draw(TEXTS)))
    return Edits(
        drop=frozenset(drawn.drop),
        contents=drawn.contents,
        texts=drawn.texts,
        notes=tuple(draw(st.permutations(drawn.notes))),
    )


def sound(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def applied(before: list[dict], edits: Edits) -> list[dict]:
    """What the edits mean, done to values."""
    after = []
    for index in range(len(before) + 1):
        notes = [note for note in edits.notes if note.before == index]
        after += [{"role": "user", "content": sound(note.text)} for note in notes if not note.merge]
        if index == len(before) or index in edits.drop:
            continue
        message = json.loads(json.dumps(before[index]))
        if index in edits.contents:
            message["content"] = sound(edits.contents[index])
        for (owner, part), text in edits.texts.items():
            if owner == index and isinstance(message["content"], str):
                message["content"] = sound(text)
            elif owner == index:
                message["content"][part]["text"] = sound(text)
        if opening := "\n\n".join(sound(note.text) for note in notes if note.merge):
            content = message["content"]
            if isinstance(content, list):
                content.insert(0, {"type": "text", "text": opening})
            else:
                message["content"] = opening if content is None else f"{opening}\n\n{content}"
        after.append(message)
    return after


@given(body=bodies(), data=st.data())
@settings(max_examples=250, deadline=None)
def test_edits_change_what_they_name_and_not_a_byte_else(body: Body, data: st.DataObject) -> None:
    chat = wire.parse(body.raw)
    edits = data.draw(edits_for(chat))

    out = splice(chat, edits)

    assert out.startswith(body.before)
    assert out.endswith(body.after)
    assert json.loads(out)["messages"] == applied(json.loads(body.raw)["messages"], edits)
    again = wire.parse(out)
    sent = [again.raw(index) for index in range(len(again.messages))]
    kept = kept_slices(chat, edits)
    assert [raw for _, raw in kept] == [body.messages[index] for index, _ in kept]
    assert {index for index, _ in kept} | edits.drop | edits.changed() == set(range(len(body.messages)))
    remaining = iter(sent)
    assert all(raw in remaining for _, raw in kept)
    assert {name: again.field(name) for name in again.fields if name != "messages"} == {
        name: raw for name, raw in body.fields.items() if name != "messages"
    }


@given(body=bodies(), data=st.data())
@settings(max_examples=80, deadline=None)
def test_dropping_alone_leaves_a_subsequence_of_the_client_s_bytes(body: Body, data: st.DataObject) -> None:
    chat = wire.parse(body.raw)
    last = data.draw(st.integers(0, len(body.messages) - 1))
    drop = data.draw(st.frozensets(st.integers(0, len(body.messages) - 1))) - {last}

    out = splice(chat, Edits(drop=drop))

    rest = iter(body.raw)
    assert all(byte in rest for byte in out)
    if not drop:
        assert out is body.raw


def test_no_edits_give_the_very_same_bytes() -> None:
    body = b'{"messages":[{"role":"user","content":"a"}]}'
    chat = wire.parse(body)
    assert splice(chat, Edits()) is body


BODY = rb"""{ "model":"m",
  "messages": [
    {"role":"system", "content":"s\u00e9"},
    {"role":"user","content":"q \ud83d","n":1.0},
    {"content":null,"role":"assistant","tool_calls":[{"id":"c","extra":{"sig":"x"},"function":{"name":"f","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"long"},{"text":"more","type":"text","x":1e400}]},
    {"role":"user","content": [ {"type":"image_url","image_url":{"url":"u"}} ] }
  ], "seed":1180591620717411303424 }
"""


@pytest.mark.parametrize(
    ("edits", "old", "new"),
    [
        pytest.param(
            Edits(drop=frozenset({0})),
            rb"""{"role":"system", "content":"s\u00e9"},
    """,
            b"",
            id="the first message leaves",
        ),
        pytest.param(
            Edits(drop=frozenset({4})),
            b""",
    {"role":"user","content": [ {"type":"image_url","image_url":{"url":"u"}} ] }""",
            b"",
            id="the last message leaves",
        ),
        pytest.param(
            Edits(contents={3: "[cleared]"}),
            b'[{"type":"text","text":"long"},{"text":"more","type":"text","x":1e400}]',
            b'"[cleared]"',
            id="a tool result becomes a placeholder",
        ),
        pytest.param(Edits(contents={2: "x"}), b'"content":null', b'"content":"x"', id="null becomes a string"),
        pytest.param(Edits(texts={(3, 1): "m…"}), b'"more"', '"m…"'.encode(), id="one part is shortened"),
        pytest.param(Edits(texts={(1, 0): "q"}), rb'"q \ud83d"', b'"q"', id="a string is shortened"),
        pytest.param(
            Edits(notes=(Note(before=1, text='a "note"', merge=True),)),
            rb'"q \ud83d"',
            rb'"a \"note\"\n\nq \ud83d"',
            id="a note is merged into a string",
        ),
        pytest.param(
            Edits(notes=(Note(before=4, text="note", merge=True),)),
            b'[ {"type":"image_url"',
            b'[{"type":"text","text":"note"}, {"type":"image_url"',
            id="a note is merged into parts",
        ),
        pytest.param(
            Edits(notes=(Note(before=4, text="note"),)),
            b'    {"role":"user","content": [',
            b'    {"role":"user","content":"note"},\n    {"role":"user","content": [',
            id="a note of its own, in the client's spacing",
        ),
    ],
)
def test_an_edit_replaces_just_these_bytes(edits: Edits, old: bytes, new: bytes) -> None:
    assert BODY.count(old) == 1
    assert splice(wire.parse(BODY), edits) == BODY.replace(old, new)


@pytest.mark.parametrize(
    ("message", "edits", "expected"),
    [
        pytest.param(
            '{"role":"tool"}', Edits(contents={0: "x"}), '{"content":"x","role":"tool"}', id="content missing"
        ),
        pytest.param(
            '{"role":"user","content":[ ]}',
            Edits(notes=(Note(before=0, text="n", merge=True),)),
            '{"role":"user","content":[{"type":"text","text":"n"} ]}',
            id="merge into no parts",
        ),
        pytest.param(
            '{"role":"user","content":""}',
            Edits(notes=(Note(before=0, text="n", merge=True), Note(before=0, text="o", merge=True))),
            '{"role":"user","content":"n\\n\\no\\n\\n"}',
            id="two notes into an empty string",
        ),
        pytest.param(
            '{"role":"user","content":null}',
            Edits(drop=frozenset({0}), notes=(Note(before=1, text="n"), Note(before=1, text="o"))),
            '{"role":"user","content":"n"},{"role":"user","content":"o"}',
            id="notes alone, in order",
        ),
        pytest.param(
            '{"role":"user","content":"汉"}',
            Edits(texts={(0, 0): "字\ud83d"}),
            '{"role":"user","content":"字\ufffd"}',
            id="half an emoji",
        ),
    ],
)
def test_odd_messages_are_edited_too(message: str, edits: Edits, expected: str) -> None:
    chat = wire.parse(f'{{"messages":[{message}]}}'.encode())
    assert splice(chat, edits).decode() == f'{{"messages":[{expected}]}}'


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        pytest.param(Edits(drop=frozenset({5})), "no message 5, only 0 to 4", id="drop out of range"),
        pytest.param(Edits(contents={-1: "x"}), "no message -1", id="content out of range"),
        pytest.param(Edits(texts={(9, 0): "x"}), "no message 9", id="text out of range"),
        pytest.param(Edits(texts={(3, 2): "x"}), "part 2 of message 3 is no text", id="part out of range"),
        pytest.param(Edits(texts={(4, 0): "x"}), "part 0 of message 4 is no text", id="an image"),
        pytest.param(Edits(texts={(2, 0): "x"}), "part 0 of message 2 is no text", id="no content"),
        pytest.param(Edits(drop=frozenset({1}), texts={(1, 0): "x"}), "dropped and changed", id="dropped and changed"),
        pytest.param(Edits(contents={1: "x"}, texts={(1, 0): "x"}), "at once", id="content and text"),
        pytest.param(Edits(contents={1: ""}), "empty", id="empty content"),
        pytest.param(Edits(texts={(1, 0): ""}), "empty", id="empty text"),
        pytest.param(Edits(notes=(Note(before=1, text=""),)), "empty", id="empty note"),
        pytest.param(Edits(notes=(Note(before=6, text="n"),)), "no place 6, only 0 to 5", id="note out of range"),
        pytest.param(Edits(notes=(Note(before=5, text="n", merge=True),)), "no message 5", id="merge at the end"),
        pytest.param(
            Edits(notes=(Note(before=3, text="n", merge=True),)), "message 3 is not a user's", id="merge, tool"
        ),
        pytest.param(Edits(drop=frozenset(range(5))), "no message would be left", id="everything leaves"),
    ],
)
def test_an_edit_that_cannot_be_made_is_named(edits: Edits, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        splice(wire.parse(BODY), edits)


def test_an_edit_inside_a_part_with_a_repeated_key_is_refused() -> None:
    part = '{"type":"text","text":"a","text":"b"}'
    chat = wire.parse(f'{{"messages":[{{"role":"user","content":[{part}]}}]}}'.encode())
    with pytest.raises(ValueError, match="more than once"):
        splice(chat, Edits(texts={(0, 0): "x"}))


def test_edits_that_keep_groups_whole_leave_nothing_new_to_refuse() -> None:
    before = json.loads(BODY)["messages"]
    edits = Edits(drop=frozenset({1}), contents={3: "[cleared]"}, notes=(Note(before=4, text="note"),))

    after = json.loads(splice(wire.parse(BODY), edits))["messages"]

    assert worsened(before, after, rewritten=frozenset({3})) == []
