"""The program that runs a server file decides the transport, whatever the `run()` of the file asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol


class FileHost(Protocol):
    """A program that runs a server file."""

    def server_created(self) -> None:
        """Prepare for a server of this library, before the file can print anything more."""

    def run(self, server: Any, transport: str, options: Mapping[str, Any]) -> None:
        """Serve in place of `server.run(transport, **options)`."""


_current: FileHost | None = None


def current() -> FileHost | None:
    """Return the program that runs the server file now; None in a program of its own."""
    return _current


@contextmanager
def hosted(host: FileHost | None) -> Iterator[None]:
    """Give every `run()` of a server to `host` for a while."""
    global _current
    before, _current = _current, host
    try:
        yield
    finally:
        _current = before
