"""Server files in their own process: the command, and who decides the transport.

the process was started by            `run("http")` serves over
a command that hosts the file         the transport of the command (`FileHost`)
a client of this library              standard input and output, also if the client has ended since
anything else                         HTTP
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

# `-m` alone searches the working directory first, so a file such as toolwire.py or typing.py of any folder that a
# server is started in would run. `-P` leaves that folder out. `run` adds the folder of the server's own file.
TOOLWIRE: Final = (sys.executable, "-P", "-m", "toolwire")

#: Holds the id of the process that started a server as a child, and talks to it over standard input and output. A
#: process that inherits the variable from such a server has another parent, so the variable says nothing to it.
CLIENT_VARIABLE: Final = "TOOLWIRE_STDIO_CLIENT"


def is_started_by_client() -> bool:
    """Return whether a client of this library started this process, to talk over stdio."""
    client = os.environ.get(CLIENT_VARIABLE)
    return client is not None and (client == str(os.getppid()) or is_input_closed())


def is_input_closed() -> bool:
    """Return whether standard input is a pipe without a writer, as where the client ended during the start."""
    if sys.platform == "win32" or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(0, 0)  # Hang-ups are reported without being asked for.
    return any(events & select.POLLHUP for _, events in poll.poll(0))


class FileHost(Protocol):
    """A program that runs a server file."""

    def server_created(self) -> None:
        """Prepare for a server of this library, before the file can print anything more."""

    def run(self, server: Any, transport: str, options: Mapping[str, Any]) -> None:
        """Serve in place of `server.run(transport, **options)`."""


_host: FileHost | None = None


def current_host() -> FileHost | None:
    """Return the program that runs the server file; None if it runs by itself."""
    return _host


@contextmanager
def hosted(host: FileHost | None) -> Iterator[None]:
    """Give every `run()` of a server to `host` for a while."""
    global _host
    before, _host = _host, host
    try:
        yield
    finally:
        _host = before
