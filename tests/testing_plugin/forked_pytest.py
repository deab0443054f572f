"""Pytest in a process that has imported everything: each run is a fork of it, which starts in a moment.

Run as a script, it reads a JSON list from each line of standard input (a folder, a file for the output, and the options
of pytest) and answers with the exit status on a line of its own. It has one thread, so that it may fork.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


class ForkedPytest:
    """The caller's side: the process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, folder: Path, *options: str) -> tuple[int, str]:
        """Return the exit status of pytest in the folder, and all that it printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        output = folder / "output.txt"
        self._process.stdin.write(json.dumps([str(folder), str(output), *options]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return int(answer), output.read_text(encoding="utf-8")

    def close(self) -> None:
        self._process.communicate()


def import_everything() -> None:
    """Import the plugins by way of pytest, which rewrites their assertions, and then what their fixtures import."""
    with tempfile.TemporaryDirectory() as folder:
        empty = ["-q", "--collect-only", "-p", "no:cacheprovider", "--rootdir", folder, folder]
        assert pytest.main(empty) == pytest.ExitCode.NO_TESTS_COLLECTED
    import hypothesis
    import uvicorn

    import toolwire.testing
    import toolwire.testing_plugin

    assert hypothesis and uvicorn and toolwire
    gc.collect()
    gc.freeze()


def run_here(folder: str, output: str, *options: str) -> None:
    """Replace the standard streams of this fork, run pytest, and end."""
    status = 1
    try:
        os.chdir(folder)
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, written), (2, written)):
            os.dup2(file, stream)
        status = int(pytest.main(list(options)))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # What the collection prints is no answer.
    import_everything()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_here(*json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answers, b"%d\n" % status)


if __name__ == "__main__":
    main()
