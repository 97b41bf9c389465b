"""The one place where everything is caught: a fault of trimtab's own never costs a request."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

import structlog

T = TypeVar("T")

_ALWAYS_THROUGH = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)

_log = structlog.get_logger("trimtab")


class Faults:
    """What went wrong while one request was worked on: short, content-free names for audit, header and metric."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def guard(self, name: str, *passing: type[BaseException]) -> "_Guard":
        """Swallow whatever the block raises and note it under `name`; exceptions in `passing` go through.

        Cancellation, exits and interrupts always go through. tiktoken's PanicException derives from
        BaseException alone, which is why that is what is caught.
        """
        return _Guard(self, name, passing)

    def attempt(self, name: str, work: Callable[[], T], otherwise: T) -> T:
        """The result of `work`, or `otherwise` where it raised."""
        with self.guard(name):
            return work()
        return otherwise

    def note(self, name: str, error: BaseException | None = None) -> None:
        """Record a fault. Only the error's type is logged: its message might quote the client's text."""
        if name not in self.names:
            self.names.append(name)
        _log.warning("fault", fault=name, error=type(error).__name__ if error is not None else None)


class _Guard:
    """What `Faults.guard` gives, to be entered any number of times.

    No generator: every request enters several, and this costs a third.
    """

    __slots__ = ("_faults", "_name", "_passing")

    def __init__(self, faults: Faults, name: str, passing: tuple[type[BaseException], ...]) -> None:
        self._faults = faults
        self._name = name
        self._passing = passing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, (*_ALWAYS_THROUGH, *self._passing)):
            return False
        self._faults.note(self._name, error)
        return True
