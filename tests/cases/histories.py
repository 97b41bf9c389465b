"""Random message histories: what clients send, well formed and not, with the parts that break other proxies."""

from itertools import chain
from typing import Any

from hypothesis import strategies as st

from tests.proxy.dialogues import Message, words

IDS = ("call_0", "call_1", "toolu_9")  # few, so that they repeat
NAMES = ("look_up", "book")
SIZES = st.sampled_from([1, 5, 30, 30, 60, 120])
EXTRAS: tuple[dict[str, Any], ...] = (
    {"reasoning_content": "Because the tide is out."},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "b64=="}]},
    {"name": "skipper"},
    {"x_unknown": {"nested": [1, 2.50, None]}},
    {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    return words(draw(SIZES), draw(st.integers(0, 40)))


@st.composite
def contents(draw: st.DrawFn) -> Any:
    """A content that is not a result: mostly text, now and then parts, an empty string, a picture."""
    kind = draw(st.sampled_from(["text"] * 6 + ["parts", "picture", "empty"]))
    if kind == "empty":
        return ""
    text = draw(texts())
    if kind == "text":
        return text
    parts: list[Any] = [{"type": "text", "text": text}]
    if kind == "picture":
        parts.append({"type": "image_url", "image_url": {"url": "https://harbour.test/a.png", "detail": "low"}})
    return parts


@st.composite
def extras(draw: st.DrawFn) -> dict[str, Any]:
    return dict(draw(st.sampled_from(EXTRAS))) if draw(st.integers(0, 7)) == 0 else {}


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """An assistant message with one to three calls, and results in some order, complete or not."""
    ids = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=3))
    calls = [
        {"id": id_, "type": "function", "function": {"name": draw(st.sampled_from(NAMES)), "arguments": "{}"}}
        for id_ in ids
    ]
    caller: Message = {
        "role": "assistant",
        "content": draw(st.sampled_from([None, "", "Let me see."])),
        "tool_calls": calls,
    }
    order = list(draw(st.permutations(ids)))
    if draw(st.integers(0, 9)) == 0:
        order = order[:-1]
    results: list[Message] = [
        {"role": "tool", "tool_call_id": id_, "content": draw(st.one_of(texts(), texts(), st.just("")))}
        for id_ in order
    ]
    return [caller | draw(extras()), *results]


@st.composite
def legacy(draw: st.DrawFn) -> list[Message]:
    """A call and its result in the form that came before tools."""
    return [
        {"role": "assistant", "content": None, "function_call": {"name": "look_up", "arguments": "{}"}},
        {"role": "function", "name": "look_up", "content": draw(texts())},
    ]


@st.composite
def plain(draw: st.DrawFn) -> list[Message]:
    """A question and its answer."""
    return [
        {"role": "user", "content": draw(contents())} | draw(extras()),
        {"role": "assistant", "content": draw(contents())} | draw(extras()),
    ]


@st.composite
def oddities(draw: st.DrawFn) -> list[Message]:
    """What clients get wrong: an orphan result, a second answer, a turn twice, an instruction in the middle."""
    return draw(
        st.sampled_from(
            [
                [{"role": "tool", "tool_call_id": "ghost", "content": words(30)}],
                [{"role": "tool", "tool_call_id": "call_0", "content": "again"}],
                [{"role": "function", "name": "look_up", "content": words(9)}],
                [{"role": "user", "content": "first half"}, {"role": "user", "content": "second half"}],
                [{"role": "assistant", "content": words(20)}, {"role": "assistant", "content": "and more"}],
                [{"role": "system", "content": "Mind the tide."}],
                [{"role": "developer", "content": "Be brief."}],
                [{"role": "critic", "content": words(20)}],
            ]
        )
    )


def histories(*, odd: bool = True, min_size: int = 2, max_size: int = 9) -> st.SearchStrategy[list[Message]]:
    """A whole list of messages; without `odd`, of plain turns and calls alone."""
    pieces = [plain(), plain(), exchanges(), *([oddities(), legacy()] if odd else [])]
    heads = st.sampled_from([[{"role": "system", "content": "You help the harbour office."}], []])
    tails = st.sampled_from(
        [
            [{"role": "user", "content": "And now?"}],
            [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Sure, it is"}],
            [],
        ]
    )
    middles = st.lists(st.one_of(pieces), min_size=min_size, max_size=max_size).map(
        lambda found: list(chain.from_iterable(found))
    )
    return st.tuples(heads, middles, tails).map(lambda parts: stamped([*parts[0], *parts[1], *parts[2]]))


def stamped(messages: list[Message]) -> list[Message]:
    """The messages, no two of them alike, so that a test can tell which of them stayed."""
    return [{**message, "x_at": at} for at, message in enumerate(messages)]
