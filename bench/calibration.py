"""How near the estimates come to a real server's counts, as they are learned from them: growing conversations, mixed.

    python -m bench.calibration FILE... --url http://127.0.0.1:8081 [--conversations 16] [--requests 8] [--warmup 10]

Each FILE is JSON lines of `{id, messages, tools?}` or `{id, request: {messages, tools?}}`. The server is llama.cpp's
with any model: its `/apply-template` and `/tokenize` say what a request costs without generating anything. Of each
file some conversations are drawn, of each conversation some prefixes that end with a user's or a tool's message; those
of several conversations come in turns. `--requests 0` sends every such prefix, as a client would.
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from proxy import tokens, wire
from proxy.tokens import counts
from proxy.tokens.calibration import MARGIN_MAX, Calibration, Past, start
from proxy.tokens.counts import Counts

OPEN = 6  # conversations that take turns
MODEL = "a-model-nobody-knows"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation: the counts of what its messages are, and where its requests end."""

    kind: str
    id: str
    messages: list[dict[str, Any]]
    tools: list[Any]
    ends: tuple[int, ...]
    beside: Counts
    each: tuple[Counts, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One request: what was estimated by what was known then, and what it cost."""

    kind: str
    opening: bool
    estimate: int
    actual: int
    margin: float
    cut: bool

    @property
    def error(self) -> float:
        """How far the estimate is off, before the margin."""
        return self.estimate / self.actual - 1

    @property
    def under(self) -> bool:
        """Whether it cost more than the estimate and its margin."""
        return self.estimate * (1 + self.margin) < self.actual


def conversations(path: Path, most: int, requests: int, rng: random.Random) -> Iterator[Conversation]:
    """Some conversations of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    counter = tokens.counter(MODEL)
    for line in rng.sample(lines, min(most, len(lines))):
        entry = json.loads(line)
        request = entry.get("request", entry)
        messages, tools = request["messages"], request.get("tools") or []
        chat = wire.parse(json.dumps({"messages": messages, **({"tools": tools} if tools else {})}).encode())
        last = len(messages) - 1
        ends = [
            i + 1
            for i, message in enumerate(messages)
            if message["role"] in ("user", "tool") and (i == last or messages[i + 1]["role"] != "tool")
        ]
        chosen = sorted(rng.sample(ends, min(requests, len(ends)))) if requests else ends
        each = tuple(counts.of_message(counter, message) for message in chat.messages)
        beside = counts.of_settings(counter, chat.settings)
        yield Conversation(path.stem, str(entry["id"]), messages, tools, tuple(chosen), beside, each)


def in_turns(drawn: list[Conversation], rng: random.Random) -> Iterator[tuple[Conversation, int]]:
    """Every request of every conversation, a few conversations at a time."""
    waiting = [(conversation, list(conversation.ends)) for conversation in drawn]
    rng.shuffle(waiting)
    running: list[tuple[Conversation, list[int]]] = []
    while waiting or running:
        while waiting and len(running) < OPEN:
            running.append(waiting.pop())
        conversation, ends = rng.choice(running)
        yield conversation, ends.pop(0)
        running = [each for each in running if each[1]]


def count(server: httpx.Client, conversation: Conversation, end: int) -> int:
    """What the server makes of a request."""
    body: dict[str, Any] = {"messages": conversation.messages[:end]}
    if conversation.tools:
        body["tools"] = conversation.tools
    prompt = server.post("/apply-template", json=body).raise_for_status().json()["prompt"]
    asked = {"content": prompt, "add_special": True, "parse_special": True}
    return len(server.post("/tokenize", json=asked).raise_for_status().json()["tokens"])


def rows(server: httpx.Client, drawn: list[Conversation], rng: random.Random) -> tuple[list[Row], Calibration]:
    """The requests in the order they were made, and what was known in the end."""
    known = start(tokens.counter(MODEL).ratios)
    pasts: dict[str, Past] = {}
    table = []
    for conversation, end in in_turns(drawn, rng):
        made = counts.total((conversation.beside, *conversation.each[:end]))
        past = pasts.get(conversation.id)
        actual = count(server, conversation, end)
        cut = known.truncated(made, actual, past)
        estimate, margin = known.estimate(made, past), known.margin(past)
        table.append(Row(conversation.kind, past is None, estimate, actual, margin, cut))
        known = known.observe(made, actual, past)
        pasts[conversation.id] = Past(made, actual)
    return table, known


def show(table: list[Row], known: Calibration) -> None:
    """Print how near the estimates came, by kind of conversation."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in table:
        groups[row.kind].append(row)
    opening = [row for row in table if row.opening]
    following = [row for row in table if not row.opening]
    print(f"{'':24} {'n':>5} {'tokens':>7} {'P50':>6} {'P95':>6} {'margin':>7} {'under':>6} {'cut?':>4}")
    for name, group in (*groups.items(), ("opening", opening), ("with a past", following), ("all", table)):
        if not group:
            continue
        p50, p95 = np.percentile([abs(row.error) for row in group], (50, 95))
        actual = np.mean([row.actual for row in group])
        margin = np.mean([row.margin for row in group])
        under = np.mean([row.under for row in group])
        cut = sum(row.cut for row in group)
        print(f"{name:24} {len(group):>5} {actual:>7.0f} {p50:>6.1%} {p95:>6.1%} {margin:>7.1%} {under:>6.2%} {cut:>4}")
    names = ("latin", "code", "cjk", "other", "calls", "schemas", "message")
    print("\nlearned: " + ", ".join(f"{name} {w:.2f}" for name, w in zip(names, known.weights, strict=True)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--url", required=True, help="the llama.cpp server")
    parser.add_argument("--conversations", type=int, default=16, help="of each file")
    parser.add_argument("--requests", type=int, default=8, help="of each conversation; 0: every one")
    parser.add_argument("--warmup", type=int, default=10, help="requests that are learned from, but not judged")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    drawn = [
        conversation
        for path in options.files
        for conversation in conversations(path, options.conversations, options.requests, rng)
    ]
    with httpx.Client(base_url=options.url, timeout=60, trust_env=False) as server:
        table, known = rows(server, drawn, rng)
    show(table[options.warmup :], known)
    print(f"margin: at most {MARGIN_MAX:.0%}; after {options.warmup} requests; seed {options.seed}")


if __name__ == "__main__":
    main()
