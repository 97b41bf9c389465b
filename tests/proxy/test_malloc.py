"""The allocator's settings, in processes of their own: they cannot be taken back."""

import platform
import subprocess
import sys

import pytest

GROWS = """
import sys
if sys.argv[1] == "bound":
    from proxy import malloc
    print(malloc.bound())
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20
before, kept = resident(), []
bytearray(30 * 2**20)  # the first large block that is freed
for turn in range(40):
    body = bytearray(2**20 + turn * 2**15)
    kept.append([bytes(600) for _ in range(400)])  # lives longer than the body, and lies behind it
    del body
print(resident() - before)
"""


def told(how: str, **env: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", GROWS, how], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc here")
def test_large_blocks_leave_no_holes() -> None:
    done, grown = told("bound")
    (plain,) = told("plain")

    assert done == "True"
    assert int(grown) < int(plain)


def test_an_operators_own_settings_stand() -> None:
    assert told("bound", MALLOC_ARENA_MAX="4")[0] == "False"
