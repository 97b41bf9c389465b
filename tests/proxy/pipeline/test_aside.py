"""Where work on a body is done, by its size."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.pipeline.aside import GIANT_BYTES, INLINE_BYTES, Aside


def thread() -> str:
    return threading.current_thread().name.partition("_")[0]


@pytest.mark.parametrize(
    ("size", "where"),
    [
        pytest.param(INLINE_BYTES, "MainThread", id="small"),
        pytest.param(INLINE_BYTES + 1, "large", id="large"),
        pytest.param(GIANT_BYTES, "large", id="as large as can be"),
        pytest.param(GIANT_BYTES + 1, "giant", id="giant"),
    ],
)
async def test_work_is_done_where_its_size_belongs(size: int, where: str) -> None:
    with ThreadPoolExecutor(1, "large") as large, ThreadPoolExecutor(1, "giant") as giant:
        assert await Aside(large, giant)(size, thread) == where
        assert await Aside(large)(size, thread) in (where, "large")


async def test_giants_keep_nobody_else_waiting() -> None:
    done = threading.Event()
    with ThreadPoolExecutor(1, "large") as large, ThreadPoolExecutor(1, "giant") as giant:
        aside = Aside(large, giant)
        giants = [asyncio.create_task(aside(GIANT_BYTES + 1, lambda: done.wait(10))) for _ in range(3)]
        await asyncio.sleep(0)

        assert await asyncio.wait_for(aside(INLINE_BYTES + 1, thread), 5) == "large"
        assert not any(task.done() for task in giants)
        done.set()
        assert all(await asyncio.gather(*giants))
