"""The figures of all decisions in an audit store as arrays, so that any period is summed in milliseconds."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np

from proxy.audit.query import Decisions, Filter
from proxy.audit.sums import MOST, OVERHEAD, SUMMED, Codes, Floats, Totals, totals

GROUPS = ("route", "policy", "model", "mode")
_UNCOUNTED = "(fits, not counted)"
_NONE = "-"
_POLICY = f"CASE WHEN event = 'decision' AND tokens_before IS NULL THEN '{_UNCOUNTED}' ELSE policy END"
_NAMES = {"route": "route", "policy": _POLICY, "model": "model", "mode": "mode", "asked": "policy"}
_FIGURES = ("id", "time", *SUMMED.values(), *MOST.values(), OVERHEAD)
SELECTED = ", ".join((*_FIGURES, *(f"coalesce({each}, '{_NONE}')" for each in _NAMES.values())))
_NAMES_KEPT = 1_000
_MORE = 20_000  # rows that are taken over at a time


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Arrays of one length: a row of `figures` for each of _FIGURES, and codes of names, by kind.

    `known` are the codes of the names; there may be some that no code stands for any more.
    """

    figures: Floats = field(default_factory=lambda: np.empty((len(_FIGURES), 0)))
    codes: dict[str, Codes] = field(default_factory=lambda: {name: np.empty(0, np.int64) for name in _NAMES})
    known: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in _NAMES})

    def since(self, row: int) -> "_Loaded":
        """The rows from this one on."""
        codes, known = {name: each[row:] for name, each in self.codes.items()}, dict(self.known)
        for kind, numbers in codes.items():
            if len(known[kind]) > _NAMES_KEPT + 2 * len(numbers):  # clients name their models: there is no end of them
                used, codes[kind] = np.unique(numbers, return_inverse=True)
                names = list(known[kind])
                known[kind] = {names[code]: number for number, code in enumerate(used)}
        return _Loaded(self.figures[:, row:], codes, known)


class Figures:
    """What `refresh` has read so far; for use from several threads."""

    def __init__(self) -> None:
        self._loaded = _Loaded()
        self._lock = Lock()
        self._latest: tuple[_Loaded, Filter, _Loaded] | None = None  # one page asks for the same period several times

    def refresh(self, decisions: Decisions) -> None:
        """Take over what came since the last time, and forget what the store has forgotten. Raises sqlite3.Error."""
        with self._lock:
            loaded = self._loaded
            ids = loaded.figures[0]
            if gone := int(np.searchsorted(ids, decisions.first())):
                loaded = loaded.since(gone)
            parts = [loaded]
            last = int(ids[-1]) if len(ids) else 0
            while rows := decisions.figures(SELECTED, last, _MORE):
                parts.append(_read(rows, loaded.known))
                last = rows[-1][0]
            if len(parts) > 1:
                loaded = _Loaded(
                    np.concatenate([part.figures for part in parts], axis=1),
                    {name: np.concatenate([part.codes[name] for part in parts]) for name in _NAMES},
                    loaded.known,
                )
            self._loaded = loaded

    def totals(self, which: Filter, *, by: str | None = None) -> list[Totals]:
        """The sums of a period, one for each value of `by` (see GROUPS), the busiest first.

        By policy, requests that surely fit are apart: no policy was asked.
        """
        loaded = self._chosen(which)
        names = [""] if by is None else list(loaded.known[by])
        codes = np.zeros(loaded.figures.shape[1], np.int64) if by is None else loaded.codes[by]
        return sorted(_totals(loaded, codes, names), key=lambda each: (-each.requests, each.name))

    def series(self, which: Filter, *, start: float, step: float, spans: int) -> list[tuple[float, Totals]]:
        """The sums of each of `spans` spans of `step` seconds that had requests, by when it began."""
        loaded = self._chosen(replace(which, since=start, until=start + step * spans))
        codes = np.minimum((loaded.figures[1] - start) // step, spans - 1).astype(np.int64)
        found = _totals(loaded, codes, [str(number) for number in range(spans)])
        return [(start + int(each.name) * step, replace(each, name="")) for each in found]

    def _chosen(self, which: Filter) -> _Loaded:
        loaded, latest = self._loaded, self._latest
        if latest is not None and latest[0] is loaded and latest[1] == which:
            return latest[2]
        chosen = self._choose(loaded, which)
        self._latest = (loaded, which, chosen)
        return chosen

    def _choose(self, loaded: _Loaded, which: Filter) -> _Loaded:
        mask = np.ones(loaded.figures.shape[1], bool)
        time = loaded.figures[1]
        if which.since is not None:
            mask &= time >= which.since
        if which.until is not None:
            mask &= time < which.until
        for name, wanted in (("route", which.route), ("model", which.model), ("asked", which.policy)):
            if wanted is not None:
                mask &= loaded.codes[name] == loaded.known[name].get(wanted, -1)
        if mask.all():
            return loaded
        codes = {name: each[mask] for name, each in loaded.codes.items()}
        return _Loaded(loaded.figures[:, mask], codes, loaded.known)


def _read(rows: Sequence[sqlite3.Row], known: dict[str, dict[str, int]]) -> _Loaded:
    """Rows as arrays; names that are new get codes in `known`."""
    width = len(_FIGURES)
    columns = list(zip(*rows, strict=True))
    codes = {}
    for name, values in zip(_NAMES, columns[width:], strict=True):
        own = known[name]
        codes[name] = np.array([own.setdefault(value, len(own)) for value in values], np.int64)
    return _Loaded(np.array(columns[:width], np.float64), codes, known)


def _totals(loaded: _Loaded, codes: Codes, names: list[str]) -> list[Totals]:
    columns = dict(zip((*SUMMED, *MOST), loaded.figures[2:-1], strict=True))
    return totals(columns, loaded.figures[-1], codes, names)
