"""Runs blocks of the documentation in forks of a process that has imported everything, which start in a moment.

Run as a script, it reads a JSON list from each line of standard input (a folder and names of files in it) and answers
with the exit status on a line of its own. What a fork writes to standard error is in `errors.txt` of the folder. It has
one thread, so that it may fork.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path


class ForkedBlocks:
    """The caller's side: the process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, folder: Path, *files: str) -> tuple[int, str]:
        """Return the exit status of a process that runs the files one after the other, and its errors."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), *files]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return int(answer), (folder / "errors.txt").read_text(encoding="utf-8")

    def close(self) -> None:
        self._process.communicate()


def import_everything() -> None:
    """Import what most blocks need. Whether a block imports what it uses, mypy says (`make check`)."""
    import fastapi
    import uvicorn

    import toolwire.auth
    import toolwire.gateway
    import toolwire.openapi
    import toolwire.server.policy
    import toolwire.testing

    assert fastapi and uvicorn and toolwire
    gc.collect()
    gc.freeze()


def begin_fork(folder: str) -> None:
    """Replace the standard streams of this fork."""
    os.chdir(folder)
    errors = os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream, file in ((0, nothing), (1, nothing), (2, errors)):
        os.dup2(file, stream)


def main() -> None:
    answers = os.dup(1)
    sys.path[0] = ""
    import_everything()
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            os.close(answers)
            folder, *files = json.loads(line)
            begin_fork(folder)
            for file in files:
                runpy.run_path(file, run_name="__main__")
            return  # The fork ends as any program does.
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answers, b"%d\n" % status)


if __name__ == "__main__":
    main()
