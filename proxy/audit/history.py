"""What was out of a conversation's prompt before one decision: the decisions that it replays, one by one. (pure)"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 100  # decisions that are followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier decision: which messages it took out or shortened, and their tokens; None where it is not kept."""

    audit_id: str
    time: str | None
    policy: str | None
    trigger: str | None
    gone: tuple[int, ...] | None
    shortened: tuple[int, ...] | None
    tokens: int | None


def history(record: Mapping[str, Any], find: Callable[[str], Mapping[str, Any] | None]) -> Iterator[Past]:
    """The decisions before a record's own, the latest first; ends with the first one that `find` does not have."""
    replayed = record.get("replayed")
    for _ in range(LONGEST):
        if not replayed or not (audit_id := replayed.get("audit_id")):
            return
        found = find(audit_id)
        yield _past(audit_id, found)
        replayed = found.get("replayed") if found is not None else None


def _past(audit_id: str, record: Mapping[str, Any] | None) -> Past:
    if record is None:
        return Past(audit_id=audit_id, time=None, policy=None, trigger=None, gone=None, shortened=None, tokens=None)
    own = [slot for slot in record.get("slots") or () if slot.get("index") is not None]
    out = [slot for slot in own if slot.get("action") in ("evict", "summarize")]
    shrunk = [slot for slot in own if slot.get("action") == "shrink"]
    return Past(
        audit_id=audit_id,
        time=record.get("time"),
        policy=record.get("policy"),
        trigger=record.get("trigger"),
        gone=tuple(sorted(index for slot in out for index in slot["messages"])),
        shortened=tuple(sorted(index for slot in shrunk for index in slot["messages"])),
        tokens=sum(slot.get("tokens") or 0 for slot in out),
    )
