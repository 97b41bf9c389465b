"""How near the counter comes to what providers billed: recorded exchanges, one line each.

    python -m bench.counting FILE [--all-hosts]

FILE is JSON lines of `{id, host, api, status, request, body | body_text, features, binary_cut?}`: requests with the
provider's response as JSON (`body`) or as the raw text of a stream (`body_text`). Such exchanges are in the test
cassettes that pydantic-ai (MIT), langchain-openai (MIT) and opentelemetry-instrumentation-openai-v2 (Apache-2.0)
carry in their source distributions. Without --all-hosts only those with api.openai.com are counted.

Off by nature: images behind a link (their size is not known, so they cost the most), audio (by its bytes), and the
search models, which are not billed for their instructions.
"""

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy import tokens, wire

_CUT = re.compile(r"\.\.\.\[(\d+) base64 characters cut\]")
_SHOWN = ("tools", "tool_result", "parallel_tool_calls", "response_format:json_schema", "part:image_url", "part:file")
_UNSURE = ("part:input_audio", "param:web_search_options")


@dataclass(frozen=True, slots=True)
class Row:
    """One exchange: what we count, what was billed, and what the request contains."""

    id: str
    model: str
    ours: int
    theirs: int
    features: tuple[str, ...]

    @property
    def difference(self) -> int:
        """Tokens that we count too many."""
        return self.ours - self.theirs


def rows(path: Path, all_hosts: bool = False) -> Iterator[Row]:
    """The exchanges in `path` whose usage is known."""
    for line in path.read_text(encoding="utf-8").splitlines():
        exchange = json.loads(line)
        if exchange["api"] != "chat_completions" or exchange["status"] != 200:
            continue
        if not all_hosts and exchange["host"] != "api.openai.com":
            continue
        usage = _usage(exchange)
        if usage is None:
            continue
        request = _restored(exchange["request"])
        yield Row(exchange["id"], request["model"], _count(request), usage, tuple(exchange["features"]))


def _count(request: dict[str, Any]) -> int:
    chat = wire.parse(json.dumps(request).encode())
    counter = tokens.counter(chat.settings.model)
    return counter.overhead(chat.settings) + sum(counter.message(message) for message in chat.messages)


def _restored(value: Any) -> Any:
    """The request with what was cut from its base64 filled up, so that sizes are right."""
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if isinstance(value, str):
        return _CUT.sub(lambda cut: "A" * int(cut[1]), value)
    return value


def _usage(exchange: dict[str, Any]) -> int | None:
    """The billed prompt tokens, from the body or from the last chunk that carries them."""
    chunks = [exchange["body"]] if exchange.get("body") else _events(exchange.get("body_text") or "")
    found = [chunk["usage"] for chunk in chunks if isinstance(chunk, dict) and chunk.get("usage")]
    return int(found[-1]["prompt_tokens"]) if found and "prompt_tokens" in found[-1] else None


def _events(text: str) -> list[Any]:
    data = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(event) for event in data if event.startswith("{")]


def show(table: list[Row]) -> None:
    """Print the exchanges, and how near they come by what they contain."""
    print(f"{'ours':>6} {'theirs':>6} {'diff':>6} {'%':>7}  model, features, exchange")
    for row in sorted(table, key=lambda row: (row.model, row.id)):
        shown = " ".join(name for name in (*_SHOWN, *_UNSURE) if name in row.features)
        share = row.difference / row.theirs
        print(f"{row.ours:>6} {row.theirs:>6} {row.difference:>+6} {share:>+7.1%}  {row.model}  [{shown}]  {row.id}")
    groups = defaultdict(list)
    for row in table:
        for name in [name for name in (*_SHOWN, *_UNSURE) if name in row.features] or ["text alone"]:
            groups[name].append(row)
    print(f"\n{'feature':28} {'n':>3} {'exact':>6} {'largest':>8} {'mean %':>7}")
    for name, group in groups.items():
        exact = sum(row.difference == 0 for row in group)
        largest = max((row.difference for row in group), key=abs)
        mean = sum(abs(row.difference) / row.theirs for row in group) / len(group)
        print(f"{name:28} {len(group):>3} {exact:>6} {largest:>+8} {mean:>7.1%}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--all-hosts", action="store_true", help="also count what other providers billed")
    options = parser.parse_args()
    show(list(rows(options.file, options.all_hosts)))


if __name__ == "__main__":
    main()
