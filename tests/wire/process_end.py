"""Waiting for the end of a process that is not a child of ours."""

from __future__ import annotations

import os
import select


def wait_until_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [])
    os.close(descriptor)
