"""What objects take in memory as the interpreter counts it, to be compared with what is counted of them."""

import enum
import gc
import sys
import types
from collections.abc import Iterable

import numpy as np

_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, enum.Enum)


def bytes_of(root: object, *, without: Iterable[object] = ()) -> int:
    """Bytes of an object and everything that is reached from it, but for what is shared by all and `without`."""
    seen, total = {id(each) for each in without}, 0
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _SHARED):
            continue
        seen.add(id(each))
        size = each.nbytes + 112 if isinstance(each, np.ndarray) else sys.getsizeof(each)
        total += -(-size // 16) * 16  # as the allocator rounds
        waiting += gc.get_referents(each)
    return total
