"""Access to the parts of a server that belong to an event loop, for tests that look into it."""

from __future__ import annotations

import asyncio
from typing import Any

from toolwire.server.runtime import Runtime
from toolwire.server.subscriptions import LegacyClient, Stream
from toolwire.server.tasks.manager import TaskManager
from toolwire.wire.session import Session


def runtime_of(server: Any) -> Runtime:
    """Return what a server has on the running loop; in a thread without a loop, on the first one."""
    runtimes = server.kernel.runtimes
    runtime: Runtime = runtimes.live[0] if asyncio._get_running_loop() is None else runtimes.here()
    return runtime


def manager_of(server: Any) -> TaskManager:
    """Return the tasks of a server on the running loop."""
    return runtime_of(server).work.tasks.manager


def clients_of(server: Any) -> dict[Session, LegacyClient]:
    """Return the connections of a server, on all loops."""
    return {session: client for hub in server.kernel.hubs for session, client in hub.clients.items()}


def streams_of(server: Any) -> set[Stream]:
    """Return the listen streams of a server, on all loops."""
    return {stream for hub in server.kernel.hubs for stream in hub.streams}
