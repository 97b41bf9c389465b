"""How an embedder has been doing, for metrics. (pure)"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How the embedder has been doing: calls, texts they made vectors of, calls that failed, and seconds they took.

    `hits` and `misses` are texts whose vectors were asked for, `dropped` those that found no room in the queue, and
    `waiting` those in it.
    """

    calls: int = 0
    made: int = 0
    failures: int = 0
    seconds: float = 0.0
    hits: int = 0
    misses: int = 0
    dropped: int = 0
    waiting: int = 0
