"""The command that serves a Python file, whatever the file does to start its server."""

from __future__ import annotations

from toolwire.wire.server_files import TOOLWIRE


def python_command(path: str) -> list[str]:
    """Return the command that serves a file over standard input and output.

    The file runs as the main program, as with `python FILE`, so that a file of another library serves as well. Its own
    `run("http")` becomes stdio. `FILE:OBJECT` names a server in the file, which is imported.
    """
    run = [*TOOLWIRE, "run"]
    return [*run, "--main", path] if path.endswith(".py") else [*run, path]
