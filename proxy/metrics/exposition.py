"""What Prometheus reads: the instruments of one worker, or those of all workers of a server merged.

Several workers keep their values in files of one folder, as prometheus-client's multiprocess mode has it; whichever
worker is asked reads all of them. What a worker counted stays when it dies, and its gauges go.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus-client reads it when it is imported

_LIVE = re.compile(r"gauge_live[a-z]+_(\d+)\.db")


@dataclass(frozen=True, slots=True)
class Page:
    """An exposition and its media type."""

    body: bytes
    content_type: str


class Exposition:
    """Renders `registry`, or with a `folder` what all workers keep there; process figures are added to both."""

    def __init__(self, registry: CollectorRegistry, folder: str | None = None) -> None:
        self._folder = folder
        self._registry = registry
        if folder is None:
            ProcessCollector(registry=registry)
        else:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry, path=folder)  # type: ignore[no-untyped-call]
            self._registry.register(_Processes(folder))

    def render(self, accept: str = "") -> Page:
        """The page in the format that the Accept header prefers. Reads files: not for the event loop."""
        if self._folder is not None:
            for pid in live_workers(self._folder):
                if not _runs(pid):
                    forget_worker(self._folder, pid)
        encoder, content_type = choose_encoder(accept)
        return Page(encoder(self._registry), content_type)


def live_workers(folder: str) -> frozenset[int]:
    """The workers whose gauges count."""
    return frozenset(int(found[1]) for file in Path(folder).iterdir() if (found := _LIVE.fullmatch(file.name)))


def forget_worker(folder: str, pid: int) -> None:
    """Leave the gauges of a worker that has ended out from now on."""
    with suppress(FileNotFoundError):  # another worker noticed too
        mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


class _Processes(Collector):
    """Memory, processor time and open files of every worker, told apart by `pid`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for pid in sorted(live_workers(self._folder)):
            for metric in _of_process(pid):
                samples = [sample._replace(labels={**sample.labels, "pid": str(pid)}) for sample in metric.samples]
                merged.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                ).samples += samples
        return merged.values()


def _of_process(pid: int) -> Iterator[Metric]:
    yield from ProcessCollector(pid=lambda: pid, registry=None).collect()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
