"""The command `toolwire` in a process whose time of day is that of a file: replicas of the fleet are started so.

The file has one number, the seconds that the clock is ahead, and may change at any time. The library reads the time of
day by `time.time`, also as the default of arguments, so the clock is replaced before the library is imported. Monotonic
clocks stay as they are, as on a machine whose clock is set. libfaketime is no alternative: it spins in a process with
threads.
"""

from __future__ import annotations

import mmap
import os
import runpy
import struct
import time

with open(os.environ["FLEET_CLOCK"], "rb") as file:
    ahead = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
right_time = time.time
time.time = lambda: right_time() + struct.unpack_from("d", ahead)[0]

if __name__ == "__main__":
    runpy.run_module("toolwire", run_name="__main__", alter_sys=True)
