"""What runs in a process of its own, beside the test that started it."""

import asyncio
import random
import resource
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any

from proxy.stores import open_store
from proxy.stores.contract import StoreError
from proxy.stores.sqlite import SQLiteStore

START_S = 20.0  # how long processes may take to come up on a busy machine


def run_together(work: Callable[..., Any], times: int, *args: object) -> list[Any]:
    """The results of `work(index, barrier, *args)` in `times` fresh processes at once."""
    context = get_context("spawn")
    with context.Manager() as manager:
        barrier = manager.Barrier(times)
        with context.Pool(times) as pool:
            return pool.starmap_async(work, [(index, barrier, *args) for index in range(times)]).get(60)


def race(index: int, barrier: Barrier, url: str, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """Open the store with all the others at once, add every key in an order of one's own; what stands.

    All wait for each other at every quarter of the way, so that none can be done before another begins.
    """

    async def adding() -> Mapping[bytes, bytes]:
        store = open_store(url)
        barrier.wait(START_S)
        await store.open()
        order = list(keys)
        random.Random(index).shuffle(order)
        standing: dict[bytes, bytes] = {}
        for start in range(0, len(order), 5):
            if start % (len(order) // 4) == 0:
                barrier.wait(START_S)
            part = dict.fromkeys(order[start : start + 5], b"writer %d" % index)
            while True:
                try:
                    standing |= await store.add(part, 60.0)
                    break
                except StoreError:  # slower than a request would wait for: the machine is busy with the others
                    await asyncio.sleep(0.05)
        await store.close()
        return standing

    return asyncio.run(adding())


def fill_the_disk(_index: int, _barrier: Barrier, path: str) -> tuple[str, bytes | None, bytes | None]:
    """Add until no file may grow: the error, a value written before, and one written once there is room again."""

    async def filling() -> tuple[str, bytes | None, bytes | None]:
        store = SQLiteStore(path)
        await store.open()
        await store.add({b"before": b"kept"}, None)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        message = ""
        for number in range(200):
            try:
                await store.add({b"%d" % number: bytes(10_000)}, None)
            except StoreError as error:
                message = str(error)
                break
        kept = (await store.look([b"before"])).values[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        after = (await store.add({b"after": b"room"}, None))[b"after"]
        await store.close()
        return message, kept, after

    return asyncio.run(filling())
