"""What a model answers from what was sent: right answers, and how near they come to those from the full history.

    python -m bench.quality.answers FILE... --model-url URL [--model NAME] [--windows 0.25,0.50] [--policies hybrid]
    python -m bench.quality.answers --planted 10 --model-url URL

FILEs are taken apart into slices of 40 messages (see bench/quality/slices.py); with `--planted` there are dialogues
with planted facts instead. Each is replayed turn by turn with the settings of a route by default, in windows of these
shares of its size, and each question is asked at the end, of a model behind any OpenAI-compatible URL. It answers from

    nothing       the instructions and the question alone
    evidence      those and the messages that state the answer
    full history  all of it
    newest, ...   what a way to trim sends; `newest` is a cut that keeps the newest, without recall

Each time it is asked to answer in a few words: without, a small model goes on with the talk instead of answering.

A question counts where the model answers it rightly from its evidence and not from nothing: what it cannot read out of
a few lines says nothing about trimming, nor does what it guesses. `sent` and `right` are of those: the share whose
evidence was sent verbatim, kept or quoted, and the share that was answered rightly; an answer is right that has the
words of the recorded one in it. `ROUGE-L` compares each reply, over all questions, with the one from the full history.
`tokens` is the mean prompt, as the model counts.

A small model loses the thread in long prompts, so windows are short here. `--results` and `--resume` as for the others.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench import asking, replaying
from bench.data import Conversation
from bench.facts import Probe, probes
from bench.progress import bar
from bench.quality.__main__ import results_of, shares_of, sources_of
from bench.quality.model import Model, Reply, right, rouge_l
from bench.quality.slices import slices
from bench.results import Results, fingerprint
from bench.supply import State, Supply
from bench.tables import show
from bench.vectors import opened
from proxy.embeddings.sentence import DEFAULT_MODEL
from proxy.errors import ConfigError
from proxy.route import Route

NOTHING, EVIDENCE, FULL = "nothing", "evidence", "full history"
BRIEFLY = "Answer in a few words."

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    files: Annotated[list[Path] | None, typer.Argument(exists=True, dir_okay=False)] = None,
    model_url: Annotated[str, typer.Option(help="Base URL of the model's server, with /v1.")] = "",
    model: Annotated[str, typer.Option(help="The model's name there.")] = "local",
    windows: Annotated[str, typer.Option(help="Shares of a conversation's size, by commas.")] = "0.25,0.50",
    policies: Annotated[str, typer.Option(help="Policies or ways, by commas.")] = "newest,hybrid",
    embeddings: Annotated[str, typer.Option(help="Model of the vectors; none: words alone.")] = DEFAULT_MODEL,
    planted: Annotated[int, typer.Option(min=0, help="So many dialogues with planted facts.")] = 0,
    messages: Annotated[int, typer.Option(help="With --planted: of each dialogue, at most.")] = 60,
    facts: Annotated[int, typer.Option(help="With --planted: in each dialogue.")] = 6,
    seed: Annotated[int, typer.Option(help="With --planted: of all that is drawn.")] = 7,
    every: Annotated[int, typer.Option(min=1, help="Take every n-th slice or dialogue only.")] = 1,
    settings: Annotated[str, typer.Option(help="Settings of the route, as in a configuration.")] = "",
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Add the table to this file, as Markdown.")] = None,
    results: Annotated[Path | None, typer.Option(help="Keep each measurement here as it is made.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from what is in --results.")] = False,
) -> None:
    """Have a model answer questions from what was sent."""
    if not model_url:
        raise typer.BadParameter("must name a server, like http://127.0.0.1:8081/v1", param_hint="--model-url")
    shares, found = shares_of(windows), results_of(results, resume)
    sources = sources_of(files, planted, messages, facts, seed)
    try:
        routes = {name: asking.route(name, settings) for name in policies.split(",")}
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--settings, --policies") from None
    score, supply = rouge_l(), Supply(opened(embeddings), State.WAITED)
    figures: dict[str, Any] = {}
    with found.stoppable():
        for name, conversations in sources.items():
            chosen = [each for each in _parts(name, conversations) if each.record["qas"]][::every]
            if not chosen:
                raise typer.BadParameter(f"{name}: no conversation has 40 messages with a question about them")
            asker = Asker(Model(f"{model_url.rstrip('/')}/", model), model, routes, shares, supply, settings, found)
            figures[name] = _figures(asker.asked(name, chosen), score)
            counted, questions = figures[name].pop("counted"), figures[name].pop("questions")
            show(
                Console(),
                f"{name}: answers of {model}, {len(chosen)} conversations, "
                f"{counted} of {questions} questions answered from their evidence alone",
                ["", "sent %", "right %", "ROUGE-L", "tokens"],
                _rows(figures[name]),
                markdown,
            )
            figures[name] |= {"counted": counted, "questions": questions}
    if out is not None:
        out.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class Asker:
    """Asks a model every question of a conversation, from each context in turn; what is in `results` is not asked."""

    def __init__(
        self,
        model: Model,
        name: str,
        routes: Mapping[str, Route],
        shares: Sequence[float],
        supply: Supply,
        settings: str,
        results: Results,
    ) -> None:
        self._model, self._name, self._routes, self._shares = model, name, routes, shares
        self._supply, self._settings, self._results = supply, settings, results

    def asked(self, source: str, chosen: Sequence[Conversation]) -> list[dict[str, list[dict[str, Any]]]]:
        """For each conversation, by context, for each question `{sent, right, reply, tokens}`."""
        contexts = [NOTHING, EVIDENCE, FULL]
        contexts += [_label(name, share) for share in self._shares for name in self._routes]
        found = []
        with bar(f"{source}: questions", len(contexts) * sum(len(each.record["qas"]) for each in chosen)) as advance:
            for each in chosen:
                row = {}
                for context in contexts:
                    key = {
                        "measure": "answers",
                        "conversation": each.id,
                        "data": fingerprint(each.record),
                        "context": context,
                        "model": self._name,
                        "settings": self._settings,
                    }
                    if key not in self._results:
                        self._results.put(key, self._answers(each, context))
                    row[context] = self._results.get(key)
                    advance(len(each.record["qas"]))
                found.append(row)
        return found

    def _answers(self, conversation: Conversation, context: str) -> list[dict[str, Any]]:
        wanted = [*probes(conversation)]
        found = []
        for (request, sent), question in zip(
            self._requests(conversation, wanted, context), conversation.record["qas"], strict=True
        ):
            reply: Reply = self._model.reply(briefly(request))
            made = {"sent": sent, "right": right(reply.text, question)}
            found.append({**made, "reply": reply.text, "tokens": reply.prompt_tokens})
        return found

    def _requests(
        self, conversation: Conversation, wanted: Sequence[Probe], context: str
    ) -> Iterable[tuple[Mapping[str, Any], bool]]:
        """What is sent for each probe, and whether its evidence is in it."""
        if context in (NOTHING, EVIDENCE):
            evidence = context == EVIDENCE
            return [(_alone(probe, evidence=evidence), evidence) for probe in wanted]
        if context == FULL:
            return [(probe.request, True) for probe in wanted]
        name, share = next(
            (name, share) for name in self._routes for share in self._shares if _label(name, share) == context
        )
        window = int(share * replaying.size(conversation))
        way = asking.way(self._routes[name], wanted)
        asked = asyncio.run(asking.asked(conversation, wanted, way, window, self._supply))
        pairs = zip(wanted, asked.sent, strict=True)
        return [(json.loads(one.body), all(fact & one.kept for fact in probe.facts)) for probe, one in pairs]


def briefly(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request with its question, the last message, followed by how to answer it."""
    *said, question = request["messages"]
    content = question["content"]
    asked = f"{content} {BRIEFLY}" if isinstance(content, str) else [*content, {"type": "text", "text": BRIEFLY}]
    return {**request, "messages": [*said, {**question, "content": asked}]}


def _parts(name: str, conversations: Iterable[Conversation]) -> Iterable[Conversation]:
    if name == "planted":
        return conversations
    return (one.conversation for conversation in conversations for one in slices(conversation))


def _label(name: str, share: float) -> str:
    return f"{name}, {share:.0%}"


def _alone(probe: Probe, *, evidence: bool) -> dict[str, Any]:
    """The request with the instructions and the question, and with all messages of tool groups that are evidence."""
    said = probe.request["messages"]
    kept = {i for i, message in enumerate(said[:1]) if message["role"] == "system"} | {len(said) - 1}
    if evidence:
        for fact in probe.facts:
            kept |= {index for each in fact for index in _group(said, each)}
    return {**probe.request, "messages": [said[i] for i in sorted(kept)]}


def _group(said: Sequence[Mapping[str, Any]], index: int) -> range:
    """The message, or the call and the results that it belongs to."""
    start, end = index, index + 1
    while start > 0 and said[start]["role"] in ("tool", "function"):
        start -= 1
    while end < len(said) and said[end]["role"] in ("tool", "function"):
        end += 1
    return range(start, end)


def _figures(found: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]], score: Any) -> dict[str, Any]:
    """By context the share of right answers among those that count, ROUGE-L over all, and the mean prompt."""
    figures: dict[str, Any] = {}
    counts = [
        [
            evidence["right"] and not nothing["right"]
            for evidence, nothing in zip(row[EVIDENCE], row[NOTHING], strict=True)
        ]
        for row in found
    ]
    counted = sum(map(sum, counts))
    for context in found[0]:
        replies = [reply for row in found for reply in row[context]]
        full = [reply["reply"] for row in found for reply in row[FULL]]
        flags = [flag for flags in counts for flag in flags]
        some = [reply for reply, flag in zip(replies, flags, strict=True) if flag]
        figures[context] = {
            "sent": _percent(sum(reply["sent"] for reply in some), counted),
            "right": _percent(sum(reply["right"] for reply in some), counted),
            "rouge_l": round(sum(map(score, full, (r["reply"] for r in replies))) / len(replies), 3),
            "tokens": round(sum(r["tokens"] for r in replies) / len(replies)),
        }
    return {**figures, "counted": counted, "questions": sum(map(len, counts))}


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 1) if whole else None


def _rows(figures: Mapping[str, Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    for context, cells in figures.items():
        if context not in (NOTHING, EVIDENCE):
            shares = ["" if cells[name] is None else f"{cells[name]:.1f}" for name in ("sent", "right")]
            yield [context, *shares, f"{cells['rouge_l']:.3f}", str(cells["tokens"])]


if __name__ == "__main__":
    app()
