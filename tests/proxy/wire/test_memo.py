"""The memory stays inside its bound, and forgets what was used least recently."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.wire.memo import Memo


def test_the_least_recently_used_goes_first() -> None:
    memo: Memo[str] = Memo(max_bytes=8000)
    for key in b"abcd":
        memo.put(bytes([key]), chr(key), 1300)
    assert memo.get(b"a") == "a"

    memo.put(b"e", "e", 1300)

    assert (memo.get(b"a"), memo.get(b"b"), memo.get(b"e")) == ("a", None, "e")


def test_sizes_are_summed_once_for_a_key_put_twice() -> None:
    memo: Memo[str] = Memo(max_bytes=100_000)
    memo.put(b"k", "old", 5000)
    once = memo.bytes_held

    memo.put(b"k", "new", 5000)

    assert (memo.bytes_held, len(memo), memo.get(b"k")) == (once, 1, "new")


def test_a_value_too_large_for_its_share_is_not_kept() -> None:
    memo: Memo[str] = Memo(max_bytes=100_000)
    memo.put(b"small", "s", 10)
    memo.put(b"large", "l", 30_000)

    assert (memo.get(b"small"), memo.get(b"large")) == ("s", None)


def test_none_is_kept_where_nothing_may_be_held() -> None:
    memo: Memo[str] = Memo(max_bytes=0)
    memo.put(b"k", "v", 1)
    assert memo.get(b"k") is None
    with pytest.raises(ValueError, match=r"max_bytes: must be at least 0.*got -1"):
        Memo(max_bytes=-1)


def test_threads_share_it_without_losing_count() -> None:
    memo: Memo[int] = Memo(max_bytes=40_000)

    def work(seed: int) -> None:
        for step in range(2000):
            key = (seed * 7 + step * 13) % 200
            assert memo.get(key.to_bytes(2)) in (None, key)
            memo.put(key.to_bytes(2), key, key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert 0 < memo.bytes_held <= 40_000
    assert memo.bytes_held == sum(600 + key for key in range(200) if memo.get(key.to_bytes(2)) is not None)


def test_what_makes_room_is_told_and_what_is_dropped_frees_its_bytes() -> None:
    gone: list[str] = []
    memo: Memo[str] = Memo(max_bytes=8000, gone=gone.append)
    for key in b"abcd":
        memo.put(bytes([key]), chr(key), 1300)

    memo.drop(b"b")
    memo.drop(b"nobody")
    memo.put(b"e", "e", 1300)
    assert gone == []

    memo.put(b"f", "f", 1300)
    assert gone == ["a"]
    assert memo.get(b"b") is None
    assert memo.bytes_held == 4 * 1900


def test_what_is_too_large_is_known_beforehand() -> None:
    memo: Memo[str] = Memo(max_bytes=8000)
    assert memo.takes(1400)
    assert not memo.takes(1401)

    memo.put(b"k", "large", 1401)
    assert len(memo) == 0


def test_what_grows_makes_room_as_what_is_put_does() -> None:
    gone: list[str] = []
    memo: Memo[str] = Memo(max_bytes=8000, gone=gone.append)
    for key in "abcd":
        memo.put(key, key, 1300)
    for key in "bcd":
        memo.grow(key, 100)
    memo.grow("d", -1)
    memo.grow("nobody", 5000)
    assert (gone, len(memo), memo.bytes_held) == ([], 4, 7899)

    memo.grow("a", 100)
    memo.put("e", "e", 0)
    assert (gone, memo.get("d"), memo.bytes_held) == (["a"], "d", 6599)


def test_what_has_grown_over_its_share_is_not_kept() -> None:
    gone: list[str] = []
    memo: Memo[str] = Memo(max_bytes=8000, gone=gone.append)
    memo.put("a", "a", 1300)
    memo.grow("a", 101)

    assert (gone, memo.get("a"), memo.bytes_held) == (["a"], None, 0)
