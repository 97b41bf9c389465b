"""Every bench, as the documentation shows them: `python -m bench.suite [--data FOLDER] [--full]`.

Without data there are those that need none: planted facts, decisions, hot conversations, load. `--data` names a folder
with recorded conversations, each file JSON lines as docs/benchmarks.md says; what is not there is left out. With
`--model-url` a model answers; `--peers` names a folder with other proxies, each in a virtual environment, to measure
beside. The short suite takes samples and is done within a quarter of an hour on two cores that have nothing else to
do; `--full` makes every figure of the documentation, in about an hour.

What measures quality runs first, `--jobs` steps at a time; then, one after the other and with the machine to
themselves, those that measure time.

In `--out` each step leaves NAME.txt (what it printed), NAME.json (figures), and those of quality NAME.jsonl (each
measurement). Charts are drawn at the end; `python -m bench.publish` puts it all into the documentation. After a stop,
`--resume` leaves out the steps that are done and goes on in those that were not.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.results import STOPPED
from bench.running import Ended, Stopped, run
from bench.steps import Step, steps

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Recorded conversations.")] = None,
    full: Annotated[bool, typer.Option(help="Everything, instead of samples.")] = False,
    out: Annotated[Path, typer.Option(help="The folder for what comes out.")] = Path("bench-out"),
    charts: Annotated[Path | None, typer.Option(help="The folder for the charts; else that for the rest.")] = None,
    model_url: Annotated[str, typer.Option(help="Base URL of a model's server; without, nothing answers.")] = "",
    model: Annotated[str, typer.Option(help="The model's name there.")] = "local",
    peers: Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="Other proxies' folder.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Steps of quality at a time.")] = os.cpu_count() or 1,
    only: Annotated[str, typer.Option(help="Steps with one of these words in their name, by commas.")] = "",
    without: Annotated[str, typer.Option(help="All steps but those.")] = "",
    resume: Annotated[bool, typer.Option(help="Go on after a stop.")] = False,
) -> None:
    """Run the suite."""
    wanted = chosen([*steps(data, model_url, model, full=full, peers=peers)], only, without)
    if not wanted:
        raise typer.BadParameter(f"no step has {only!r} in its name, or all are left out", param_hint="--only")
    out.mkdir(parents=True, exist_ok=True)
    left = [step for step in wanted if not (resume and (out / f"{step.name}.done").exists())]
    for step in wanted:
        if step not in left:
            print(f"{step.name}: done before")
            continue
        for suffix in ("done", "md"):
            (out / f"{step.name}.{suffix}").unlink(missing_ok=True)
        (out / f"{step.name}.command").write_text(f"{step.shown(data, model_url, peers)}\n", encoding="utf-8")
    failed: list[str] = []

    def ended(each: Ended) -> None:
        print((out / f"{each.step.name}.txt").read_text(encoding="utf-8", errors="replace"))
        took = f"{each.seconds:.0f} s, {each.cpu_s:.0f} s of the processor"
        if each.code:
            failed.append(each.step.name)
            print(f"{each.step.name}: failed with exit code {each.code}, see {out / each.step.name}.txt")
        else:
            (out / f"{each.step.name}.done").write_text(f"{took}\n", encoding="utf-8")
            print(f"{each.step.name}: {took}\n", flush=True)

    try:
        run(left, out, jobs, resume=resume, ended=ended)
    except Stopped as stopped:
        print(f"stopped in {stopped}: --resume goes on")
        raise SystemExit(STOPPED) from None
    subprocess.run([sys.executable, "-m", "bench.quality.charts", str(out), "--into", str(charts or out)], check=False)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def chosen(found: list[Step], only: str, without: str) -> list[Step]:
    """The steps whose names have one of the words of `only` in them, if there are some, and none of `without`."""
    some, none = ([word for word in given.split(",") if word] for given in (only, without))
    return [
        step
        for step in found
        if (not some or any(word in step.name for word in some)) and not any(word in step.name for word in none)
    ]


if __name__ == "__main__":
    app()
