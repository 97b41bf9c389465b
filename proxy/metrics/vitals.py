"""How the parts of a worker are doing, copied into its metrics now and then: store, audit, windows, requests open."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict

from prometheus_client import Counter

from proxy.audit import Counts
from proxy.metrics import Metrics
from proxy.stores.steady import Stats

SAMPLE_S = 2.0

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
        self._seen: dict[str, float] = {}

    def sample(self) -> None:
        """Bring the metrics up to date."""
        stats = asdict(self._store())
        for name, counter in self._store_counts.items():
            self._add(f"store_{name}", counter, stats[name])
        for result, count in asdict(self._audit).items():
            self._add(result, self._records.labels(result), count)
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
