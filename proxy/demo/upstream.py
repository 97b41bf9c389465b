"""An upstream that answers by itself: as the talk has it, else with a quote of the prompt that it was sent.

It stands for a model as far as this shows what trimming does: what is not in the prompt, it cannot tell.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from policies.relevance import Index, bm25
from policies.terms import read
from proxy.demo.talk import Talk

MODEL = "gpt-4o"
UNKNOWN = "Nothing in what I was sent tells me that."
_WORD_S = 0.025  # a fast model's pace


class Model:
    """Answers chat completions, streamed or whole. `speed` multiplies the pace of its words; 0 takes no time."""

    def __init__(self, talk: Talk, *, speed: float) -> None:
        self._talk = talk
        self._pause_s = _WORD_S / speed if speed else 0.0

    def app(self) -> Starlette:
        """The upstream as an ASGI application."""
        return Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    async def _complete(self, request: Request) -> Response:
        asked = await request.json()
        answer = self.answer(asked["messages"])
        if asked.get("stream"):
            return StreamingResponse(self._stream(answer), media_type="text/event-stream")
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({**_head("chat.completion"), "choices": [choice]})

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """What is said to a prompt."""
        *prompt, last = (str(each["content"]) for each in messages)
        asked = next((turn.user for turn in self._talk.turns if last.endswith(turn.user)), last)
        if (answer := self._talk.answers.get(asked)) is not None:
            return answer
        return self._quoted(asked, [*prompt, last.removesuffix(asked)])  # what goes before it there is a note

    def _quoted(self, asked: str, prompt: Sequence[str]) -> str:
        """Of what was told in the talk and is in the prompt, the sentence that has most to do with what is asked."""
        told = [sentence for sentence in self._talk.sentences if any(sentence in text for text in prompt)]
        if not told:
            return UNKNOWN
        scores = bm25(read(asked), Index.of(told))
        best = max(range(len(told)), key=lambda i: scores[i])
        return f"You told me, or I you: “{told[best]}”" if scores[best] > 0 else UNKNOWN

    async def _stream(self, answer: str) -> AsyncIterator[str]:
        deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in _words(answer)), {}]
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}
            yield f"data: {json.dumps({**_head('chat.completion.chunk'), 'choices': [choice]})}\n\n"
            await asyncio.sleep(self._pause_s)
        yield "data: [DONE]\n\n"


def _words(answer: str) -> list[str]:
    first, *rest = answer.split(" ")
    return [first, *(f" {word}" for word in rest)]


def _head(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-demo", "object": kind, "created": 0, "model": MODEL}
