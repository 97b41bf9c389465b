"""Every bench in turn, as the documentation shows them: `python -m bench.suite [--data FOLDER] [--full]`.

Without data there are those that need none: load, hot conversations, decisions, planted facts. `--data` names a folder
with recorded conversations, each file JSON lines as docs/benchmarks.md says; what is not there is left out. With
`--model-url` a model answers. The short suite takes samples and is done within a quarter of an hour on two cores that
have nothing else to do; `--full` takes everything, for hours.

In `--out` each step leaves NAME.txt (what it printed), NAME.json (figures), and those of quality NAME.jsonl (each
measurement). Charts are drawn at the end; `python -m bench.publish` puts it all into the documentation. After a stop,
`--resume` leaves out the steps that are done and goes on in the one that was not.
"""

import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.results import STOPPED

BOUNDS = "identity,tail,oracle"
POLICIES = "fifo,lru_token,priority,rwr,token_cost,semantic,semantic_cluster,adaptive,hybrid"
FILES = ("locomo", "support", "chinese", "memorybank_en", "agents")
SAMPLED = {"locomo": (2, 6), "support": (8, 5), "chinese": (8, 10), "memorybank_en": (8, 1), "agents": (10, 2)}
"""How many conversations of a file the short suite takes, and every how manyth question of each: some fifty in all."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the suite: a module with arguments; `kept`: it can go on after a stop and writes Markdown."""

    name: str
    module: str
    arguments: tuple[str, ...]
    output: str | None = "--json"
    kept: bool = False

    def shown(self, data: Path | None, model_url: str) -> str:
        """The command as the documentation shows it: DATA and URL stand for what is different from place to place."""
        words = [word.replace(str(data), "DATA") if data is not None else word for word in self.arguments]
        words = ["URL" if model_url and word == model_url else word for word in words]
        return shlex.join(["python", "-m", self.module, *words])

    def command(self, out: Path, *, resume: bool) -> list[str]:
        """The whole command line."""
        made = [sys.executable, "-m", self.module, *self.arguments]
        if self.output is not None:
            made += [self.output, str(out / f"{self.name}.json")]
        if self.kept:
            made += ["--markdown", str(out / f"{self.name}.md"), "--results", str(out / f"{self.name}.jsonl")]
            made += ["--resume"] if resume else []
        return made


def steps(data: Path | None, model_url: str, model: str, *, full: bool) -> Iterator[Step]:
    """The steps that what is given allows, in order."""
    yield Step("load", "bench.load", () if full else ("--rounds", "100", "--seconds", "1", "--streams", "20"), "--out")
    yield Step("hot", "bench.hot", () if full else ("--conversations", "500"), None)
    yield Step("decide", "bench.decide", () if full else ("--rounds", "10"))
    planted = ("20", "400", "20") if full else ("4", "200", "12")
    yield Step(
        "planted",
        "bench.quality",
        (
            *_flags(("planted", "messages", "facts"), planted),
            *("--replay", "--budgets", "0.10,0.25,0.50", "--policies", f"newest,{POLICIES},oracle"),
        ),
        kept=True,
    )
    files = {name: data / f"{name}.jsonl" for name in FILES if (data / f"{name}.jsonl").is_file()} if data else {}
    for name, file in files.items():
        yield from _evidence(name, file, full=full)
    if "support" in files:
        some = () if full else ("--every", "12")
        yield Step("intent", "bench.quality.intent", (str(files["support"]), *some), kept=True)
    if "agents" in files:
        also = [each for name in POLICIES.split(",") for each in ("--also", f"policy: {name}")]
        long = () if full else ("--longer-than", "30000")
        yield Step("cache", "bench.cache", (str(files["agents"]), *long, *(also if full else also[-4:])))
    if model_url:
        where = ("--model-url", model_url, "--model", model)
        made = _flags(("planted", "messages", "facts"), ("10", "60", "6") if full else ("4", "60", "6"))
        yield Step("answers-planted", "bench.quality.answers", (*made, *where), kept=True)
        if "support" in files:
            slices = (str(files["support"]), "--every", "4" if full else "40")
            yield Step("answers-support", "bench.quality.answers", (*slices, *where), kept=True)


def _evidence(name: str, file: Path, *, full: bool) -> Iterator[Step]:
    """Evidence kept of one file: cut at once by everything, and by the default policy in each state of vectors."""
    count, every = SAMPLED[name]
    some = () if full else ("--conversations", str(count), "--every", str(every))
    own = f"{BOUNDS},lexical,relevance,{POLICIES if full else 'priority,semantic_cluster,hybrid'}"
    yield Step(f"evidence-{name}", "bench.quality", (str(file), *some, "--policies", own), kept=True)
    states = ("--vectors", "waited,prepared,cold", "--policies", "hybrid")
    sample = ("--every", "10") if full else ("--conversations", str(count), "--every", str(3 * every))
    yield Step(f"vectors-{name}", "bench.quality", (str(file), *sample, *states), kept=True)
    if name == "agents":
        return  # what a call needs is asked where it is made, not at the end
    replay = ("--replay", "--policies", f"identity,newest,tail,{POLICIES if full else 'priority,hybrid'},oracle")
    one = () if full else ("--conversations", "1", "--every", "10", "--budgets", "0.25")
    yield Step(f"replayed-{name}", "bench.quality", (str(file), *one, *replay), kept=True)


def _flags(names: Sequence[str], values: Sequence[str]) -> list[str]:
    return [each for name, value in zip(names, values, strict=True) for each in (f"--{name}", value)]


@app.command()
def main(
    data: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Recorded conversations.")] = None,
    full: Annotated[bool, typer.Option(help="Everything, instead of samples.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for what comes out.")] = Path("bench-out"),
    charts: Annotated[Path | None, typer.Option(help="The folder for the charts; else that for the rest.")] = None,
    model_url: Annotated[str, typer.Option(help="Base URL of a model's server; without, nothing answers.")] = "",
    model: Annotated[str, typer.Option(help="The model's name there.")] = "local",
    only: Annotated[str, typer.Option(help="Steps with this in their name.")] = "",
    resume: Annotated[bool, typer.Option(help="Go on after a stop.")] = False,
) -> None:
    """Run the suite."""
    wanted = [step for step in steps(data, model_url, model, full=full) if only in step.name]
    if not wanted:
        raise typer.BadParameter(f"no step has {only!r} in its name", param_hint="--only")
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for number, step in enumerate(wanted, 1):
        done = out / f"{step.name}.done"
        if resume and done.exists():
            print(f"{step.name}: done before")
            continue
        done.unlink(missing_ok=True)
        (out / f"{step.name}.md").unlink(missing_ok=True)
        print(f"{step.name} ({number} of {len(wanted)}) ...", flush=True)
        (out / f"{step.name}.command").write_text(f"{step.shown(data, model_url)}\n", encoding="utf-8")
        code = run(step, out, resume=resume)
        if code in (STOPPED, -2):
            raise SystemExit(f"stopped in {step.name}: --resume goes on")
        if code:
            failed.append(step.name)
            print(f"{step.name}: failed with exit code {code}, see {out / step.name}.txt")
        else:
            done.touch()
    subprocess.run([sys.executable, "-m", "bench.quality.charts", str(out), "--into", str(charts or out)], check=False)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def run(step: Step, out: Path, *, resume: bool) -> int:
    """Run a step, its output into its file, and show that; gives its exit code."""
    environment = {**os.environ, "COLUMNS": str(max(120, shutil.get_terminal_size().columns))}
    before, start = _cpu_s(), time.perf_counter()
    with (out / f"{step.name}.txt").open("w", encoding="utf-8") as printed:
        command = step.command(out, resume=resume)
        try:
            code = subprocess.run(command, stdout=printed, env=environment, check=False).returncode
        except KeyboardInterrupt:
            code = STOPPED
    print((out / f"{step.name}.txt").read_text(encoding="utf-8"))
    print(f"{step.name}: {time.perf_counter() - start:.0f} s, {_cpu_s() - before:.0f} s of the processor\n", flush=True)
    return code


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    app()
