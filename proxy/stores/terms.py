"""How long things live, in the unit that backends keep. (pure)"""

_LONGEST_MS = 2**48  # 8,900 years: sums with today's date stay far inside 63 bits


def milliseconds(ttl_s: float) -> int:
    """`ttl_s` in whole milliseconds, at least 1; what is absurdly long (infinity too) is cut to some millennia."""
    if ttl_s >= _LONGEST_MS / 1000:
        return _LONGEST_MS
    return max(1, round(ttl_s * 1000))
