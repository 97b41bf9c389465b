"""Telling others what was evicted: functions behind the entry point `trimtab.evicted`, called off the request path."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points

import structlog

from proxy.guard import Faults

GROUP = "trimtab.evicted"

_log = structlog.get_logger("trimtab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """What one decision took out of a conversation: the client's own JSON of each message, by its index."""

    audit_id: str
    conversation: str | None
    route: str
    model: str | None
    messages: tuple[tuple[int, bytes], ...] = field(repr=False)


Hook = Callable[[Evicted], None]


def installed() -> tuple[Hook, ...]:
    """The functions behind the entry point; one that cannot be loaded is logged and left out."""
    found: list[Hook] = []
    for point in entry_points(group=GROUP):
        with Faults().guard(f"hook {point.name}"):
            found.append(point.load())
    return tuple(found)


class Hooks:
    """Calls hooks one after another on a thread of its own; what finds no room among `size` decisions is dropped.

    The thread starts with the first decision and does not keep the process alive. Raises ValueError for a size below 1.
    """

    def __init__(self, hooks: Sequence[Hook], *, size: int = 1024) -> None:
        if size < 1:
            raise ValueError(f"size: must be at least 1, got {size}")
        self._hooks = tuple(hooks)
        self._waiting: queue.Queue[Evicted | None] = queue.Queue(size)
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def tell(self, evicted: Evicted) -> None:
        """Hand a decision's evictions to every hook, some time later."""
        if not self._hooks:
            return
        try:
            self._waiting.put_nowait(evicted)
        except queue.Full:
            self.dropped += 1
            _log.warning("evicted_hooks_full", dropped=self.dropped)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trimtab-evicted", daemon=True)
            self._thread.start()

    def close(self, timeout_s: float = 2.0) -> bool:
        """Let the hooks finish what they were told; False if they still are at it after `timeout_s` seconds."""
        if self._thread is None:
            return True
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (evicted := self._waiting.get()) is not None:
            for hook in self._hooks:
                with Faults().guard("evicted hook"):
                    hook(evicted)
