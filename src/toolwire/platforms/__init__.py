"""Functions that differ between operating systems, under the same names for all."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from toolwire.platforms.windows import (
        ProcessTree,
        binary,
        own_end,
        parent,
        peek_status,
        resolve,
        shared_end,
        spawn_options,
        try_lock,
        unlock,
        wait_ready,
        watch_exit,
    )
else:
    from toolwire.platforms.posix import (
        binary,
        parent,
        peek_status,
        resolve,
        spawn_options,
        try_lock,
        unlock,
        wait_ready,
    )

    if sys.platform == "linux":
        from toolwire.platforms.linux import ProcessTree, own_end, shared_end, watch_exit
    elif sys.platform == "darwin":
        from toolwire.platforms.darwin import watch_exit
        from toolwire.platforms.posix import ProcessTree, own_end, shared_end
    else:
        from toolwire.platforms.posix import ProcessTree, own_end, shared_end, watch_exit

__all__ = [
    "ProcessTree",
    "binary",
    "own_end",
    "parent",
    "peek_status",
    "resolve",
    "shared_end",
    "spawn_options",
    "try_lock",
    "unlock",
    "wait_ready",
    "watch_exit",
]
