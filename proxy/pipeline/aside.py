"""Work that could hold the event loop up, and where it is done."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

INLINE_BYTES = 64 * 1024  # what is read, counted and cut in the time that a thread takes to be asked
GIANT_BYTES = 4 * 1024 * 1024  # what keeps a thread busy for a second or more

T = TypeVar("T")


class Aside:
    """Does work on the threads of an executor, the event loop's own by default, unless there is little of it.

    With an executor of their own for `giants`, work on large bodies never waits for that on the largest.
    """

    def __init__(self, executor: Executor | None = None, giants: Executor | None = None) -> None:
        self._executor = executor
        self._giants = giants or executor

    async def __call__(self, size_bytes: int, work: Callable[[], T]) -> T:
        """The result of work on so many bytes of a request, done at once where they are few."""
        if size_bytes <= INLINE_BYTES:
            return work()
        executor = self._executor if size_bytes <= GIANT_BYTES else self._giants
        return await asyncio.get_running_loop().run_in_executor(executor, work)
