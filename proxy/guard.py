"""The one place where everything is caught: a fault of trimtab's own never costs a request."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import structlog

T = TypeVar("T")

_ALWAYS_THROUGH = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)

_log = structlog.get_logger("trimtab")


class Faults:
    """What went wrong while one request was worked on: short, content-free names for audit, header and metric."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def guard(self, name: str, *passing: type[BaseException]) -> Iterator[None]:
        """Swallow whatever the block raises and note it under `name`; exceptions in `passing` go through.

        Cancellation, exits and interrupts always go through. tiktoken's PanicException derives from
        BaseException alone, which is why that is what is caught.
        """
        through: tuple[type[BaseException], ...] = (*_ALWAYS_THROUGH, *passing)
        try:
            yield
        except through:
            raise
        except BaseException as error:  # noqa: BLE001 - this is the one guard
            self.note(name, error)

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
