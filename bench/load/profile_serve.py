"""trimtab for the profiler: `python -m bench.load.profile_serve CONFIG PORT OUT` serves until it is stopped.

From SIGUSR1 to SIGUSR2 its event loop is profiled; OUT is written then.
"""

import cProfile
import os
import signal
import sys
import time
from pathlib import Path

from proxy import serving


def main(config: str, port: str, out: str) -> None:
    """Serve until stopped."""
    profile = cProfile.Profile(
        time.thread_time
    )  # processor time: a busy machine interrupts where it is looked for least

    def end(*_: object) -> None:
        profile.disable()
        profile.dump_stats(f"{out}.part")
        os.replace(f"{out}.part", out)

    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    signal.signal(signal.SIGUSR2, end)
    serving.run(Path(config), host=None, port=int(port), workers=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
