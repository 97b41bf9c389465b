"""A model behind an OpenAI-compatible URL, and what its replies are worth."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import httpx

_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered, and the tokens of the prompt as it counted them; empty where the prompt was too long."""

    text: str
    prompt_tokens: int


class Model:
    """A model by name at a base URL like `http://127.0.0.1:8081/v1`; `OPENAI_API_KEY` is sent where it is set.

    Replies are as good as the same each time: temperature 0, a fixed seed, at most `most` tokens.
    """

    def __init__(self, url: str, name: str, *, most: int = 32) -> None:
        key = os.environ.get("OPENAI_API_KEY")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=url, headers=headers, timeout=_PATIENCE_S, trust_env=False)
        self._name = name
        self._most = most

    def reply(self, request: Mapping[str, Any]) -> Reply:
        """The reply to a chat request, whose model and limits are replaced.

        Raises SystemExit where the model cannot be asked; it says why.
        """
        body = {"messages": request["messages"], "model": self._name, "temperature": 0, "seed": 0}
        body["max_tokens"] = self._most
        try:
            response = self._client.post("chat/completions", json=body)
        except httpx.HTTPError as error:
            raise SystemExit(f"--model-url: {self._client.base_url} does not answer ({error})") from None
        if response.status_code in (400, 413) and "context" in response.text:
            return Reply("", 0)
        if response.is_error:
            raise SystemExit(f"--model-url: status {response.status_code}: {response.text[:300]}")
        found = response.json()
        text = found["choices"][0]["message"].get("content") or ""
        return Reply(text, int((found.get("usage") or {}).get("prompt_tokens", 0)))


def words(text: str) -> list[str]:
    """The words of a text, and of scripts without spaces each character, in lower case."""
    return _WORDS.findall(text.casefold())


def right(reply: str, question: Mapping[str, Any]) -> bool:
    """Whether a reply says the answer of a recorded question, word by word: any variant of it, or all of its parts."""
    said = words(reply)
    if parts := question.get("answer_parts"):
        return all(_says(said, str(part)) for part in parts)
    return any(_says(said, str(each)) for each in question.get("answer_variants") or (question["answer"],))


def _says(said: list[str], answer: str) -> bool:
    wanted = words(answer)
    return bool(wanted) and any(said[i : i + len(wanted)] == wanted for i in range(len(said) - len(wanted) + 1))


class _Words:
    """The tokenizer of ROUGE."""

    def tokenize(self, text: str) -> list[str]:
        return words(text)


def rouge_l() -> Callable[[str, str], float]:
    """ROUGE-L (Lin 2004), the F-measure of the longest common subsequence of words: of a reference and a reply, 0..1.

    Raises SystemExit where the package is not installed.
    """
    try:
        scorer_of = import_module("rouge_score.rouge_scorer").RougeScorer
    except ImportError:
        raise SystemExit("rouge-score is not installed: pip install 'trimtab[bench]'") from None
    scorer = scorer_of(["rougeL"], tokenizer=_Words())
    return lambda reference, reply: float(scorer.score(reference, reply)["rougeL"].fmeasure)
