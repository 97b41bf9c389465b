"""The upstream of the demonstration: it knows the talk's answers, and of everything else what it is sent."""

import json

import httpx2
import pytest

from proxy.demo.talk import Talk, Turn
from proxy.demo.upstream import UNKNOWN, Model

TALK = Talk(
    system="Be short.",
    turns=(
        Turn("The key lies under the third pot. Is that safe?", "Safer than under the mat. Tell the neighbour too."),
        Turn("What colour for the door?", "Green."),
        Turn("Where does the key lie?", None),
    ),
)
MODEL = Model(TALK, speed=0)


def asked(*texts: str) -> str:
    return MODEL.answer([{"role": "user", "content": text} for text in texts])


def test_what_the_talk_answers_is_answered_so() -> None:
    assert asked("What colour for the door?") == "Green."
    assert asked("a note\n\nWhat colour for the door?") == "Green.", "with a note before it"


def test_what_is_in_the_prompt_is_quoted() -> None:
    assert "“The key lies under the third pot.”" in asked(TALK.turns[0].user, "Where does the key lie?")
    assert "third pot" in asked("Note: The key lies under the third pot.\n\nWhere does the key lie?")


@pytest.mark.parametrize("prompt", [(), ("Green.",)], ids=["nothing", "another sentence"])
def test_what_is_not_in_the_prompt_is_not_known(prompt: tuple[str, ...]) -> None:
    assert asked(*prompt, "Where does the key lie?") == UNKNOWN


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_both_forms_say_the_same(stream: bool) -> None:
    transport = httpx2.ASGITransport(MODEL.app())
    body = {"messages": [{"role": "user", "content": TALK.turns[0].user}], "stream": stream}
    async with httpx2.AsyncClient(transport=transport, base_url="http://upstream.test") as client:
        answer = await client.post("/v1/chat/completions", json=body)

    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
        told = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    else:
        told = answer.json()["choices"][0]["message"]["content"]
    assert told == TALK.turns[0].answer
