"""How a worker's parts are doing, copied into its metrics now and then: store, audit, models, windows, memories."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Literal

from prometheus_client import Counter

from proxy import embeddings
from proxy.audit import Counts
from proxy.conversations import background
from proxy.memories import Held, Memories
from proxy.metrics import Metrics
from proxy.recall import ratings
from proxy.stores.steady import Stats

SAMPLE_S = 2.0

Counting = embeddings.Stats | ratings.Stats | background.Counts

_STORE = {
    "calls": "Calls that were sent to the store.",
    "seconds": "Time that calls to the store took, in seconds.",
    "failures": "Calls to the store that failed, those that took too long included.",
    "timeouts": "Calls to the store that took too long.",
    "refused": "Calls that were not sent because the store was down.",
    "outages": "Times that the store went down.",
    "written_back": "Values that were written when the store was back.",
    "superseded": "Of these, values that another worker had written first.",
    "dropped": "Values that were too many to be kept until the store is back.",
}
_PARTS = {
    "embedder": {
        "calls": "Batches of texts that vectors were made of.",
        "made": "Texts that vectors were made of.",
        "failures": "Batches that failed.",
        "seconds": "Time that making vectors took, in seconds.",
        "hits": "Texts whose vectors were there when they were wanted.",
        "misses": "Texts whose vectors were not there when they were wanted.",
        "dropped": "Texts that found no room among those that wait for vectors.",
    },
    "ratings": {
        "calls": "Questions to a model how much messages matter.",
        "rated": "Messages that a model rated.",
        "failures": "Questions that got no answer, or none that makes sense.",
        "seconds": "Time that answers took, in seconds.",
    },
    "background": {
        "done": "Conversations whose next cut was prepared.",
        "failed": "Preparations that failed.",
        "dropped": "Preparations that found no room among those that wait.",
        "outrun": "Preparations that were not needed any more: the conversation had moved on.",
    },
}
_WAITING = {
    "embedder": "Texts that wait for vectors.",
    "ratings": "Questions to a model that wait, or for their answer.",
    "background": "Conversations that wait for the preparation of their next cut.",
}


class Vitals:
    """Reads what the parts count themselves, and adds what is new to the counters of `metrics`."""

    def __init__(
        self, metrics: Metrics, *, store: Callable[[], Stats], audit: Counts, windows: Callable[[], int]
    ) -> None:
        self._store = store
        self._audit = audit
        self._windows = windows
        self._store_counts = {name: metrics.counter(f"trimtab_store_{name}", text) for name, text in _STORE.items()}
        self._records = metrics.counter("trimtab_audit_records", "Audit records, by what became of them.", "result")
        self._waiting = metrics.gauge(
            "trimtab_store_waiting", "Values to be written when the store is back.", mode="livesum"
        )
        self._down = metrics.gauge("trimtab_store_down", "Workers for which the store is down.", mode="livesum")
        self._learned = metrics.gauge(
            "trimtab_windows_learned", "Models whose upstream told their window.", mode="livemax"
        )
        self._parts = {
            (part, name): metrics.counter(f"trimtab_{part}_{name}", text)
            for part, names in _PARTS.items()
            for name, text in names.items()
        }
        self._queues = {
            part: metrics.gauge(f"trimtab_{part}_waiting", text, mode="livesum") for part, text in _WAITING.items()
        }
        self._remembered: dict[str, Callable[[], Held]] = {}
        self._held = metrics.gauge("trimtab_memory_bytes", "What is remembered, in bytes.", "memory", mode="livesum")
        self._most = metrics.gauge(
            "trimtab_memory_limit_bytes", "The most that may be remembered, in bytes.", "memory", mode="livesum"
        )
        self._entries = metrics.gauge(
            "trimtab_memory_entries", "How many things are remembered.", "memory", mode="livesum"
        )
        self._watched: dict[str, Callable[[], Counting]] = {}
        self._seen: dict[str, float] = {}

    def watch(self, part: Literal["embedder", "ratings", "background"], counts: Callable[[], Counting]) -> None:
        """Read what a part counts as well from now on."""
        self._watched[part] = counts

    def remember(self, memories: Memories) -> None:
        """Read how full these memories are as well from now on."""
        self._remembered |= memories

    def sample(self) -> None:
        """Bring the metrics up to date."""
        stats = asdict(self._store())
        for name, counter in self._store_counts.items():
            self._add(f"store_{name}", counter, stats[name])
        for result, count in asdict(self._audit).items():
            self._add(result, self._records.labels(result), count)
        for part, counts in self._watched.items():
            counted = asdict(counts())
            self._queues[part].set(counted["waiting"])
            for name in _PARTS[part]:
                self._add(f"{part}_{name}", self._parts[part, name], counted[name])
        for memory, held in self._remembered.items():
            now = held()
            self._held.labels(memory).set(now.bytes)
            self._most.labels(memory).set(now.most)
            self._entries.labels(memory).set(now.entries)
        self._waiting.set(stats["waiting"])
        self._down.set(stats["down"])
        self._learned.set(self._windows())

    async def keep(self, every_s: float = SAMPLE_S) -> None:
        """Sample until cancelled: a worker that is not asked itself is read from its files."""
        while True:
            self.sample()
            await asyncio.sleep(every_s)

    def _add(self, name: str, counter: Counter, total: float) -> None:
        before = self._seen.get(name, 0)
        self._seen[name] = total
        counter.inc(max(total - before, 0))
