"""How glibc's allocator holds a worker's memory: what a large request took goes back to the system when it is over.

By default glibc raises, with the first large block that is freed, the size from which blocks have a mapping of their
own, up to 32 MB (mallopt(3), M_MMAP_THRESHOLD). From then on bodies lie among small blocks that live longer, and the
heap grows around the holes that they leave. Threads with arenas of their own multiply that.
"""

import ctypes
import os

SETTINGS = {  # by the parameters' numbers in malloc.h
    -3: 256 * 1024,  # M_MMAP_THRESHOLD, bytes: larger blocks are mapped, and given back when they are freed
    -1: 1024 * 1024,  # M_TRIM_THRESHOLD, bytes: as much that is free at the heap's end is given back
    -8: 2,  # M_ARENA_MAX: the event loop's, and one for all threads
}
OWN = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")  # an operator's own settings, or own allocator


def bound() -> bool:
    """Set it so for this process; False where there is nothing to set, or where the environment has set it."""
    if any(name.startswith(OWN) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return {mallopt(parameter, value) for parameter, value in SETTINGS.items()} == {1}
