"""Ports for processes that are named before they listen."""

from __future__ import annotations

import contextlib
import random
import socket

_RANDOM = random.SystemRandom()


def free_port() -> int:
    """Return a port that nobody listens on, nor on the one 10,000 above it, which a node of a cluster uses, too.

    Both are below those that the system gives to outgoing connections, so that none takes it before the process does.
    """
    while True:
        port = _RANDOM.randint(12_000, 22_000)
        with socket.socket() as one, socket.socket() as two, contextlib.suppress(OSError):
            one.bind(("", port))
            two.bind(("", port + 10_000))
            return port
