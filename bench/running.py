"""The steps of the suite as processes, several at a time where they may be, with a bar for each and one for all."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from bench.progress import TOLD, columns, told
from bench.steps import Step

LOOK_S = 0.25
PATIENCE_S = 60.0  # for a step to keep what it has, once it was told to stop
# With several processes on as many cores, threads of their own would only be in each other's way.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Ended:
    """A step that came to its end: its exit code, and the seconds it took, of the clock and of processors."""

    step: Step
    code: int
    seconds: float
    cpu_s: float


@dataclass(slots=True)
class _Running:
    step: Step
    process: subprocess.Popen[bytes]
    task: TaskID
    started: float = field(default_factory=time.perf_counter)


class Stopped(Exception):  # noqa: N818 - somebody wanted it
    """The suite was interrupted, and with it what ran: the names of those steps."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))


def run(steps: Sequence[Step], out: Path, jobs: int, *, resume: bool, ended: Callable[[Ended], None]) -> None:
    """Run steps, `jobs` at a time, those that need the machine alone after the others; `ended` is told of each.

    What a step prints is in `out`, in NAME.txt. On SIGINT and SIGTERM those that run are told to stop, so that they
    keep what they have. Raises Stopped then.
    """
    shared = [step for step in steps if not step.alone]
    with _bars() as bars, _interruptible():
        total = bars.add_task("all steps", total=len(steps))

        def finished(each: Ended) -> None:
            bars.advance(total)
            bars.stop()  # so that what is printed does not end up among the bars
            ended(each)
            bars.start()

        _pool(shared, out, jobs, bars, finished, resume=resume)
        _pool([step for step in steps if step.alone], out, 1, bars, finished, resume=resume)


def _pool(
    steps: Sequence[Step], out: Path, jobs: int, bars: Progress, ended: Callable[[Ended], None], *, resume: bool
) -> None:
    waiting, running = [*steps], list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.pop(0), out, bars, one_thread=jobs > 1, resume=resume))
            time.sleep(LOOK_S)
            for each in [*running]:
                _show(each, out, bars)
                if (over := _over(each)) is not None:
                    running.remove(each)
                    bars.remove_task(each.task)
                    _progress(out, each.step).unlink(missing_ok=True)
                    ended(over)
    except KeyboardInterrupt:
        for each in running:
            each.process.send_signal(signal.SIGINT)
        for each in running:
            try:
                each.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
            _progress(out, each.step).unlink(missing_ok=True)
        raise Stopped([each.step.name for each in running]) from None


def _start(step: Step, out: Path, bars: Progress, *, one_thread: bool, resume: bool) -> _Running:
    """Begin a step, in a session of its own: an interrupt from the keyboard must not reach it twice."""
    environment = _environment(_progress(out, step), one_thread=one_thread)
    with (out / f"{step.name}.txt").open("wb") as printed:
        process = subprocess.Popen(
            step.command(out, resume=resume),
            stdout=printed,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    return _Running(step, process, bars.add_task(step.name, total=None))


def _environment(progress: Path, *, one_thread: bool) -> Mapping[str, str]:
    progress.unlink(missing_ok=True)
    found = {**os.environ, "COLUMNS": str(max(120, shutil.get_terminal_size().columns)), TOLD: str(progress)}
    return {**found, **ONE_THREAD} if one_thread else found


def _progress(out: Path, step: Step) -> Path:
    return out / f"{step.name}.progress"


def _show(each: _Running, out: Path, bars: Progress) -> None:
    if (news := told(_progress(out, each.step))) is None:
        return
    what, done, of = news
    description = f"{each.step.name}: {what}"
    if bars.tasks and description != next(task.description for task in bars.tasks if task.id == each.task):
        bars.reset(each.task, description=description, total=of)  # its time is told from the beginning
    bars.update(each.task, completed=done, total=of)


def _over(each: _Running) -> Ended | None:
    """How a step ended; None while it runs."""
    pid, status, used = os.wait4(each.process.pid, os.WNOHANG)
    if pid == 0:
        return None
    each.process.returncode = code = os.waitstatus_to_exitcode(status)
    return Ended(each.step, code, time.perf_counter() - each.started, used.ru_utime + used.ru_stime)


@contextmanager
def _bars() -> Iterator[Progress]:
    """Bars on stderr; what is printed to stdout goes there."""
    console = Console(stderr=True)
    with Progress(*columns(), console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bars:
        yield bars


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make of a request to end what an interrupt is, and hear interrupts in a shell's background too."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
