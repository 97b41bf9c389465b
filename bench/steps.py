"""What the suite measures: each step is a command of a bench, with its arguments."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BOUNDS = "identity,tail,oracle"
POLICIES = "fifo,lru_token,priority,rwr,token_cost,semantic,semantic_cluster,adaptive,hybrid"
FEW = "priority,semantic_cluster,hybrid"
PEERS = ("awecompress", "context-guardian", "litellm", "nginx")


@dataclass(frozen=True, slots=True)
class Sample:
    """How much of a file is taken: so many conversations (0: all), and every `every`-th question of each."""

    conversations: int = 0
    every: int = 1

    def flags(self, times: int = 1) -> list[str]:
        """The options of `bench.quality`; with `times`, only every so manyth of the questions."""
        found = ["--conversations", str(self.conversations)] if self.conversations else []
        return found + (["--every", str(self.every * times)] if self.every * times > 1 else [])


SHORT = {
    "locomo": Sample(3, 6),
    "support": Sample(12, 4),
    "chinese": Sample(8, 8),
    "memorybank_en": Sample(),
    "agents": Sample(16, 2),
}
FULL = {
    "locomo": Sample(),
    "support": Sample(),
    "chinese": Sample(every=4),
    "memorybank_en": Sample(),
    "agents": Sample(),
}
REPLAYED = ("locomo", "support")
"""What of a file the suites take. Questions about Chinese conversations are alike: made by few templates."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the suite: a module with arguments.

    `output` is the option that takes the file of figures; `markdown`: it writes Markdown; `kept`: that, and it can go
    on after a stop. What measures time has the machine `alone`.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    output: str | None = "--json"
    kept: bool = False
    markdown: bool = False
    alone: bool = False

    def shown(self, data: Path | None, model_url: str, peers: Path | None = None) -> str:
        """The command as the documentation shows it: DATA and URL stand for what is different from place to place."""
        words = [word.replace(str(data), "DATA") if data is not None else word for word in self.arguments]
        stands = {model_url: "URL", str(peers): "peers"}
        return shlex.join(["python", "-m", self.module, *(stands.get(word, word) for word in words)])

    def command(self, out: Path, *, resume: bool) -> list[str]:
        """The whole command line."""
        made = [sys.executable, "-m", self.module, *self.arguments]
        if self.output is not None:
            made += [self.output, str(out / f"{self.name}.json")]
        if self.kept or self.markdown:
            made += ["--markdown", str(out / f"{self.name}.md")]
        if self.kept:
            made += ["--results", str(out / f"{self.name}.jsonl")]
            made += ["--resume"] if resume else []
        return made


def steps(data: Path | None, model_url: str, model: str, *, full: bool, peers: Path | None = None) -> Iterator[Step]:
    """The steps that what is given allows: what takes longest first, what needs the machine alone last."""
    files = {name: data / f"{name}.jsonl" for name in FULL if (data / f"{name}.jsonl").is_file()} if data else {}
    sampled = FULL if full else SHORT
    if model_url:
        yield from _answers(files.get("support"), model_url, model, full=full)
    for name, file in files.items():
        ways = f"{BOUNDS},lexical,relevance,{POLICIES if full else FEW}"
        arguments = (str(file), *sampled[name].flags(), "--policies", ways)
        yield Step(f"evidence-{name}", "bench.quality", arguments, kept=True)
    for name in (name for name in REPLAYED if name in files):
        ways = f"newest,tail,{POLICIES if full else f'fifo,{FEW}'},oracle"
        some = Sample(0, 4) if full else Sample(1 if name == "locomo" else 4, 4)
        arguments = (str(files[name]), *some.flags(), "--replay", "--budgets", "0.10,0.25,0.50", "--policies", ways)
        yield Step(f"replayed-{name}", "bench.quality", arguments, kept=True)
    if "agents" in files:
        compared = (POLICIES if full else f"fifo,{FEW}").split(",")
        also = [each for name in compared for each in ("--also", f"policy: {name}")]
        long = () if full else ("--longer-than", "30000")
        yield Step("cache", "bench.cache", (str(files["agents"]), *long, *also))
    planted = _flags(("planted", "messages", "facts"), ("12", "300", "16") if full else ("6", "200", "12"))
    planted += ("--replay", "--budgets", "0.10,0.25,0.50", "--policies", f"newest,{POLICIES},oracle")
    yield Step("planted", "bench.quality", tuple(planted), kept=True)
    yield from _timed(files, full=full)
    if peers is not None:
        named = [each for name in PEERS for each in ("--peer", name)]
        arguments = ("--peers", str(peers), *named, *(() if full else ("--rounds", "100", "--seconds", "1")))
        yield Step("peers", "bench.load", arguments, "--out", markdown=True, alone=True)


def _timed(files: dict[str, Path], *, full: bool) -> Iterator[Step]:
    """The steps that measure time, or that a time limit decides about."""
    states = ("--vectors", "waited,prepared,cold", "--policies", "hybrid")
    for name in (name for name in ("locomo", "support", "agents") if name in files):
        sample = FULL[name].flags(1 if name == "locomo" else 5) if full else SHORT[name].flags(4)
        yield Step(f"vectors-{name}", "bench.quality", (str(files[name]), *sample, *states), kept=True, alone=True)
    if "support" in files:
        arguments = (str(files["support"]), *(() if full else ("--every", "8")))
        yield Step("intent", "bench.quality.intent", arguments, kept=True, alone=True)
    yield Step("decide", "bench.decide", () if full else ("--rounds", "10", "--seconds", "0.3"), alone=True)
    yield Step("hot", "bench.hot", () if full else ("--conversations", "1000"), None, alone=True)
    few = () if full else ("--rounds", "100", "--seconds", "1")
    yield Step("load", "bench.load", few, "--out", markdown=True, alone=True)


def _answers(support: Path | None, url: str, model: str, *, full: bool) -> Iterator[Step]:
    where = ("--model-url", url, "--model", model)
    made = _flags(("planted", "messages", "facts"), ("10", "60", "6") if full else ("3", "60", "6"))
    yield Step("answers-planted", "bench.quality.answers", (*made, *where), kept=True)
    if support is not None:
        slices = (str(support), "--every", "20" if full else "40")
        yield Step("answers-support", "bench.quality.answers", (*slices, *where), kept=True)


def _flags(names: Sequence[str], values: Sequence[str]) -> list[str]:
    return [each for name, value in zip(names, values, strict=True) for each in (f"--{name}", value)]
